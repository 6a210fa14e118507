#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up the test cases of all stages of scripts/test.

Reads a table with one line per stage: name, exit status, and JUnit file or directory of JUnit files, separated by tabs.
Counts a stage as one failure if it failed without a failed case, ran no test, or left no results, so that no failure is
lost. The last line printed is `N passed, N failed`, followed by `, N skipped` if any test was skipped.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree


@dataclass
class Tally:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add_case(self, stage: str, case: ElementTree.Element) -> None:
        name = f"{stage}: {case.get('classname', '')} {case.get('name', '')}"
        wrong = [child for child in case if child.tag in ("failure", "error")]
        if wrong:
            self.failed.append(f"{name}{first_line(wrong[0])}")
        elif (skip := case.find("skipped")) is not None:
            self.skipped.append(f"{name}{first_line(skip)}")
        else:
            self.passed += 1

    def add_stage(self, stage: str, status: int, results: Path) -> None:
        failed_before = len(self.failed)
        files = sorted(results.glob("*.xml")) if results.is_dir() else [results]
        try:
            cases = [case for file in files for case in ElementTree.parse(file).iter("testcase")]
        except (OSError, ElementTree.ParseError) as error:
            self.failed.append(f"{stage}: ended with status {status} and no results: {error}")
            return
        for case in cases:
            self.add_case(stage, case)
        if not cases:
            self.failed.append(f"{stage}: ran no test")
        elif status != 0 and len(self.failed) == failed_before:
            self.failed.append(f"{stage}: ended with status {status}, though no case failed")


def first_line(element: ElementTree.Element) -> str:
    text = (element.get("message") or element.text or "").strip()
    return f": {text.splitlines()[0][:300]}" if text else ""


def main() -> int:
    tally = Tally()
    for line in Path(sys.argv[1]).read_text().splitlines():
        stage, status, results = line.split("\t")
        tally.add_stage(stage, int(status), Path(results))
    for name in tally.skipped:
        print(f"SKIPPED {name}")
    for name in tally.failed:
        print(f"FAILED  {name}")
    tail = f", {len(tally.skipped)} skipped" if tally.skipped else ""
    print(f"{tally.passed} passed, {len(tally.failed)} failed{tail}")
    return 0 if tally.passed and not tally.failed else 1


if __name__ == "__main__":
    sys.exit(main())
