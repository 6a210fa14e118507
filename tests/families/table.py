#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of the tested families into a document (docs/profiles.md).

    table.py FIGURES DOCUMENT

FIGURES is a directory with one JSON file per family, written by test_families.py. DOCUMENT contains the table between
two comments, `families: begin` and `families: end`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BEGIN = "<!-- families: begin (scripts/test --families writes this) -->"
END = "<!-- families: end -->"
COLUMNS = ("program", "profile", "4 users at once: builds", "errors", "a later user: builds", "hits",
           "after a killed builder: errors", "a failing build: errors of others")
KEYS = ("builds", "errors", "later_builds", "later_hits", "killed_errors", "failing_errors")


def row(family: dict[str, Any]) -> str:
    native, ours = family["native"], family["cacheshim"]
    figures = {key: f"{native[key]} → {ours[key]}" for key in KEYS}
    figures["later_hits"] += f" of {family['steps']}"
    cells = [family["title"], family["profile"], *figures.values()]
    return f"| {' | '.join(cells)} |"


def table(families: list[dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|",
             *(row(family) for family in sorted(families, key=lambda one: one["title"].lower()))]
    return "\n".join(lines)


def main() -> int:
    figures, document = Path(sys.argv[1]), Path(sys.argv[2])
    families = [json.loads(path.read_text()) for path in sorted(figures.glob("*.json"))]
    if not families:
        print(f"table.py: no figures in {figures}", file=sys.stderr)
        return 1
    text = document.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"table.py: {document} lacks the comments around the table", file=sys.stderr)
        return 1
    document.write_text(f"{before}{BEGIN}\n\n{table(families)}\n\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
