#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies that docs/limits.md shows each limit of common/limits.def, and that the daemon charges users for each.
Usage: limits_test.py REPOSITORY"""

import pathlib
import re
import sys

ROW = re.compile(r'CACHESHIM_LIMIT\((\w+),\s*(\w+),\s*(\d+),\s*(\w+),\s*((?:"[^"]*"\s*)+),\s*((?:"[^"]*"\s*)+)\)')


def joined(literals):
    return "".join(re.findall(r'"([^"]*)"', literals))


def shown(key, standard):
    return f"{int(standard) >> 40} TiB" if key.endswith("_size") else standard


def offences(repository):
    rows = ROW.findall((repository / "common/limits.def").read_text())
    listed = re.findall(r"^\| (`max_.*) \|$", (repository / "docs/limits.md").read_text(), re.MULTILINE)
    expected = [f"`{key}` | {shown(key, standard)} | {'–' if error == 'none' else error} | {joined(what)} | {joined(effect)}"
                for _, key, standard, error, what, effect in rows]
    charged = set(re.findall(r"\b(?:take|charge|Charge|charge\w*)\([^;]*Limit::k(\w+)",
                             "".join(file.read_text() for file in sorted((repository / "fuse").rglob("*.cc")))))
    return ([f"docs/limits.md lacks the row '| {row} |'" for row in expected if row not in listed] +
            [f"docs/limits.md has the row '| {row} |'" for row in listed if row not in expected] +
            [f"nobody is charged for '{row[1]}'" for row in rows if row[0] not in charged] +
            ([] if rows else ["the table has no rows"]))


if __name__ == "__main__":
    lines = offences(pathlib.Path(sys.argv[1]))
    print("\n".join(lines) or "each limit is documented and charged")
    sys.exit(1 if lines else 0)
