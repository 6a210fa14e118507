#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies that each promise of docs/security.md names a test, and that the tests exist. Usage:
security_document_test.py REPOSITORY"""

import pathlib
import re
import sys

HEADING = "## What the daemon promises"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def promises(text: str) -> list[str]:
    """Returns the rows of the table of promises."""
    section = text.split(HEADING, 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def offences(top: pathlib.Path) -> list[str]:
    rows, found = promises((top / "docs/security.md").read_text()), []
    for row in rows:
        named = NAMED.findall(row)
        if not named:
            found.append(f"no test is named: {row}")
        for file, test in named:
            path = top / file
            if not path.exists() or not re.search(rf"^def {test}\(", path.read_text(), re.M):
                found.append(f"there is no {file}::{test}")
    return found if rows else ["docs/security.md has no promises"]


if __name__ == "__main__":
    lines = offences(pathlib.Path(sys.argv[1]))
    print("\n".join(lines) or "each promise names tests that exist")
    sys.exit(1 if lines else 0)
