#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The race of overlay file systems. Called by scripts/bench, in namespaces of its own.

Exit status: 0 when every contestant could be run, else 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import report
from bars import bars
from rows import ROWS, Row
from sampling import Patience, race
from stage import Stage
from summary import Summary

KEYS = 2000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.split(".")[0])
    parser.add_argument("--quick", action="store_true", help="short samples, three of each")
    parser.add_argument("--rows", default="", help="only these, by name, with commas between")
    parser.add_argument("--samples", type=int, help="of each cell (7; with --quick 3)")
    parser.add_argument("--patience", type=float, default=600, metavar="SECONDS",
                        help="for repeating disturbed samples, in all (600; with --quick 60)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument("--cacheshim", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--area", type=Path, required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen_rows(names: str) -> list[Row]:
    if not names:
        return list(ROWS)
    known = {row.name: row for row in ROWS}
    wanted = names.split(",")
    if unknown := [name for name in wanted if name not in known]:
        sys.exit(f"bench: no row is called {unknown[0]!r}; there are {', '.join(known)}")
    return [row for row in ROWS if row.name in wanted]


def main() -> int:
    arguments = parse_arguments()
    rows = chosen_rows(arguments.rows)
    samples = arguments.samples or (3 if arguments.quick else 7)
    stage = Stage(arguments.area, arguments.cacheshim, arguments.worker, KEYS)
    stage.prepare()
    patience = Patience(60 if arguments.quick else arguments.patience, attempts=3)
    results = race(stage, rows, samples, 0.2 if arguments.quick else 0.4, patience)
    summary = Summary(results)
    seen = list(bars(summary, rows))
    about = f"{report.machine(arguments.area)}; {samples} samples of each cell, medians"
    print(report.text(summary, rows, seen, about))
    if arguments.json:
        arguments.json.write_text(json.dumps(report.as_json(summary, seen, about), indent=1) + "\n")
    return 0 if all(cell.could_mount for cell in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
