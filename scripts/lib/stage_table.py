#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the long stages of scripts/test, and records when each last passed completely.

    stage_table.py REPOSITORY show              prints the table
    stage_table.py REPOSITORY names [--due]     prints one name per line; --due: only those without a valid pass
    stage_table.py REPOSITORY hash NAME         prints the hash of a stage's sources
    stage_table.py REPOSITORY record NAME HASH SECONDS TALLY   records a pass of the sources with that hash

tests/stages.toml names the sources of each stage. A pass is recorded in tests/stage-passes.tsv with a hash
of these sources, and is valid while the hash is the same. Only committed sources are hashed: a pass is not
recorded if they have uncommitted changes, or if they changed while the stage ran.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import subprocess
import sys
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass
class Pass:
    stage: str
    date: str
    commit: str
    minutes: str
    tally: str
    sources: str  # the hash of the stage's sources


RECORD = "tests/stage-passes.tsv"


class Stages:
    """The stages of a repository, and its record of passes."""

    def __init__(self, repository: Path):
        self._repository = repository
        self._record = repository / RECORD
        table = tomllib.loads((repository / "tests/stages.toml").read_text())
        self._common = table["common"]
        self._program = table["program"]
        self._stages = table["stage"]

    def names(self) -> list[str]:
        return list(self._stages)

    def about(self, name: str) -> str:
        return self._stages[name]["about"]

    def sources(self, name: str) -> list[str]:
        stage = self._stages[name]
        program = [] if stage.get("library_only") else self._program
        return sorted(self._common + program + stage["sources"])

    def hash_of(self, name: str) -> str:
        """Returns the hash of the committed sources: of their modes, names and contents as git records them."""
        listing = self._git("ls-tree", "-r", "HEAD", "--", *self.sources(name)).splitlines()
        sources = [line for line in listing if not line.endswith(f"\t{RECORD}")]
        return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:16]

    def has_uncommitted_sources(self, name: str) -> bool:
        return self._git("status", "--porcelain", "--", *self.sources(name),
                         f":(exclude){RECORD}") != ""

    def passes(self) -> dict[str, Pass]:
        if not self._record.exists():
            return {}
        lines = self._record.read_text().splitlines()[1:]
        found = [Pass(*line.split("\t")) for line in lines]
        return {one.stage: one for one in found}

    def is_valid(self, name: str) -> bool:
        last = self.passes().get(name)
        return last is not None and last.sources == self.hash_of(name)

    def record(self, name: str, seconds: int, tally: str) -> None:
        passes = self.passes()
        today = datetime.date.today().isoformat()
        commit = self._git("rev-parse", "--short=12", "HEAD").strip()
        minutes = str(max(1, round(seconds / 60)))
        passes[name] = Pass(name, today, commit, minutes, tally, self.hash_of(name))
        columns = [field.name for field in fields(Pass)]
        rows = [columns] + [[getattr(passes[stage], column) for column in columns]
                            for stage in self.names() if stage in passes]
        self._record.write_text("".join("\t".join(row) + "\n" for row in rows))

    def _git(self, *words: str) -> str:
        # Root may run this in a checkout that another user owns.
        return subprocess.run(["git", "-c", "safe.directory=*", "-C", str(self._repository), *words],
                              check=True, stdout=subprocess.PIPE, text=True).stdout


def state_of(stages: Stages, name: str) -> list[str]:
    last = stages.passes().get(name)
    if last is None:
        return [name, "never passed", "", "", "", stages.about(name)]
    state = "valid" if stages.is_valid(name) else "sources changed"
    return [name, state, last.date, last.commit, f"{last.minutes} min, {last.tally}",
            stages.about(name)]


def show(stages: Stages) -> None:
    rows = [["stage", "state", "last passed", "at commit", "result", "what it runs"]]
    rows += [state_of(stages, name) for name in stages.names()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def record(stages: Stages, name: str, tested: str, seconds: int, tally: str) -> None:
    if stages.has_uncommitted_sources(name) or stages.hash_of(name) != tested:
        print(f"stage {name}: its sources have uncommitted changes, or changed while it ran; this "
              "pass is not recorded", file=sys.stderr)
        return
    stages.record(name, seconds, tally)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", type=Path)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show")
    commands.add_parser("names").add_argument("--due", action="store_true")
    commands.add_parser("hash").add_argument("name")
    recorder = commands.add_parser("record")
    recorder.add_argument("name")
    recorder.add_argument("hash")
    recorder.add_argument("seconds", type=int)
    recorder.add_argument("tally")
    arguments = parser.parse_args()
    stages = Stages(arguments.repository)
    if arguments.command == "show":
        show(stages)
    elif arguments.command == "names":
        for name in stages.names():
            if not (arguments.due and stages.is_valid(name)):
                print(name)
    elif arguments.command == "hash":
        print(stages.hash_of(arguments.name))
    else:
        record(stages, arguments.name, arguments.hash, arguments.seconds, arguments.tally)
    return 0


if __name__ == "__main__":
    sys.exit(main())
