#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Triton storm: unmodified Triton, several users, one cache.

    storm.py demo     the table of scripts/demo
    storm.py small    every scenario once, in a size for two cores
    storm.py full     the required figures in their full size
    storm.py only TEXT…   the scenarios of both lists whose name contains one of the texts
    storm.py inductor  torch.compile() instead of Triton
    storm.py compare  what single flight saves, compared with a plain directory; TEXT: the number of rounds
    storm.py autotuner  jobs with some configurations that fail, compared with private caches; TEXT: the number of rounds
    storm.py list

scripts/lib/lab.sh runs this script in separate namespaces (enter-lab.sh).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import autotuner
import compare
import demo
import programme
from cases import Scenario, Verdict, judge
from lab import Lab, prepare


def venv(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    return name, Path(path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("demo", "small", "full", "only", "inductor", "compare",
                                             "autotuner", "list"))
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--repo", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="an empty directory on disk")
    parser.add_argument(
        "--venv", type=venv, action="append", default=[], help="NAME=PATH of a virtual environment"
    )
    parser.add_argument("--junit", type=Path, help="write results as JUnit XML")
    return parser.parse_args()


def chosen(what: str, texts: list[str]) -> list[tuple[str, Scenario]]:
    if what == "small":
        return programme.SMALL
    if what == "full":
        return programme.FULL
    if what == "inductor":
        return programme.INDUCTOR
    every = programme.SMALL + programme.FULL
    return [one for one in every if any(text in one[0] for text in texts)]


def show(verdict: Verdict) -> None:
    word = "SKIP" if verdict.skipped else "FAIL" if verdict.complaints else "ok"
    figures = verdict.skipped or json.dumps(verdict.figures)
    print(f"{word:4} {verdict.name} ({verdict.seconds:.1f} s) {figures}", flush=True)
    for line in verdict.complaints[:20]:
        print(f"     {line}", flush=True)
    if len(verdict.complaints) > 20:
        print(f"     … {len(verdict.complaints)} complaints in all", flush=True)


def write_junit(path: Path, verdicts: list[Verdict]) -> None:
    suite = ElementTree.Element("testsuite", name="storm", tests=str(len(verdicts)))
    for verdict in verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", classname="storm", name=verdict.name, time=f"{verdict.seconds:.3f}"
        )
        if verdict.skipped:
            ElementTree.SubElement(case, "skipped", message=verdict.skipped)
        elif verdict.complaints:
            failure = ElementTree.SubElement(case, "failure", message=verdict.complaints[0])
            failure.text = "\n".join(verdict.complaints)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def run_scenarios(lab: Lab, arguments: argparse.Namespace) -> int:
    verdicts = []
    for name, scenario in chosen(arguments.what, arguments.texts):
        verdicts.append(judge(lab, name, scenario))
        show(verdicts[-1])
    if arguments.junit:
        write_junit(arguments.junit, verdicts)
    return 1 if not verdicts or any(one.complaints for one in verdicts) else 0


def main() -> int:
    arguments = parse_arguments()
    if arguments.what == "list":
        for name, _ in programme.SMALL + programme.FULL:
            print(name)
        return 0
    lab = prepare(arguments.repo, arguments.work, dict(arguments.venv))
    if arguments.what == "demo":
        return demo.run(lab)
    comparisons = {"compare": compare.run, "autotuner": autotuner.run}
    if arguments.what in comparisons:
        return comparisons[arguments.what](lab, int(arguments.texts[0]) if arguments.texts else 3)
    return run_scenarios(lab, arguments)


if __name__ == "__main__":
    sys.exit(main())
