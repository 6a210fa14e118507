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


def offences(repository):
    rows = ROW.findall((repository / "common/limits.def").read_text())
    listed = re.findall(r"^\| (`max_.*) \|$", (repository / "docs/limits.md").read_text(), re.MULTILINE)
    expected = [f"`{key}` | {standard} | {'–' if error == 'none' else error} | {joined(what)} | {joined(effect)}"
                for _, key, standard, error, what, effect in rows]
    charged = set(re.findall(r"\btake\([^;]*Limit::k(\w+)|\bcharge\([^;]*Limit::k(\w+)",
                             "".join(file.read_text() for file in sorted((repository / "fuse").rglob("*.cc")))))
    names = {name for pair in charged for name in pair}
    return ([f"docs/limits.md lacks the row '| {row} |'" for row in expected if row not in listed] +
            [f"docs/limits.md has the row '| {row} |'" for row in listed if row not in expected] +
            [f"nobody is charged for '{row[1]}'" for row in rows if row[0] not in names] +
            ([] if rows else ["the table has no rows"]))


if __name__ == "__main__":
    lines = offences(pathlib.Path(sys.argv[1]))
    print("\n".join(lines) or "each limit is documented and charged")
    sys.exit(1 if lines else 0)
