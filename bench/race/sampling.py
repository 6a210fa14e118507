# SPDX-License-Identifier: Apache-2.0
"""Takes samples of the contestants in turn, and repeats those that other processes disturbed."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from contestants import Contestant
from rows import NEVER, Row
from stage import CannotMount, Failed, Stage

QUIET_CORES = 0.2  # the CPU use of other processes that is acceptable during a sample
NOT_ITS_ROW = "publishes nothing"


@dataclass(frozen=True)
class Sample:
    rate: float  # operations per second
    own_cpu_us: float  # CPU time per operation in the measured processes
    daemon_cpu_us: float  # CPU time per operation in the daemon
    other_cores: float  # the cores that other processes used during the sample

    @property
    def quiet(self) -> bool:
        return self.other_cores < QUIET_CORES

    @property
    def cpu_us(self) -> float:
        return self.own_cpu_us + self.daemon_cpu_us


@dataclass
class Cell:
    """The samples of one contestant in one row with one number of processes: one sample per round."""

    samples: list[Sample] = field(default_factory=list)
    failure: str = ""  # why there are no samples
    could_mount: bool = True


Results = dict[tuple[str, int, str], Cell]  # indexed by row, number of processes, contestant


class Patience:
    """The time left for repeating disturbed samples, for the whole race."""

    def __init__(self, seconds: float, attempts: int) -> None:
        self._left_s = seconds
        self.attempts = attempts

    def is_left(self) -> bool:
        return self._left_s > 0

    def spend(self, since: float) -> None:
        self._left_s -= time.monotonic() - since


def take_sample(
    stage: Stage, contestant: Contestant, row: Row, processes: int, seconds: float
) -> Sample:
    """Runs one row on a fresh mount. Raises Failed if the contestant cannot run the row."""
    try:
        with stage.mounted(contestant) as mounted:
            # For rows that only read, `native` uses the base, so that all contestants read the same pages of the page
            # cache: the location of these pages in memory can change the time of a hit by a fifth.
            directory = mounted.directory if contestant.mount or row.changes else stage.base
            told = stage.work(
                "row", directory, row.name, "--keys", stage.keys, "--processes", processes,
                "--seconds", seconds, "--seed", random.getrandbits(48),
                *[word for pid in mounted.daemons for word in ("--daemon", pid)],
                publish=row.publish, preload=contestant.preload,
            )
    finally:
        if row.changes:
            mend(stage, contestant, row)
    operations = told["operations"]
    return Sample(
        rate=operations / told["seconds"],
        own_cpu_us=1e6 * told["own_cpu"] / operations,
        daemon_cpu_us=1e6 * told["daemon_cpu"] / operations,
        other_cores=told["other_cpu"] / told["seconds"],
    )


def mend(stage: Stage, contestant: Contestant, row: Row) -> None:
    """Undoes a row's changes to the trees, and writes all data to disk before the next row is measured."""
    if not contestant.mount:
        stage.make(stage.native)
    elif row.publish != NEVER:
        stage.make(stage.base)
    os.sync()


def take_quiet_sample(
    stage: Stage, contestant: Contestant, row: Row, processes: int, seconds: float,
    patience: Patience,
) -> Sample:
    """Returns the first undisturbed sample, or the least disturbed one of several."""
    best = take_sample(stage, contestant, row, processes, seconds)
    for _ in range(patience.attempts):
        if best.quiet or not patience.is_left():
            break
        begin = time.monotonic()
        time.sleep(0.2)
        again = take_sample(stage, contestant, row, processes, seconds)
        best = min(best, again, key=lambda sample: sample.other_cores)
        patience.spend(begin)
    return best


def takes_part(contestant: Contestant, row: Row) -> bool:
    return contestant.publishes or not row.only_publishers


def race(
    stage: Stage, contestants: Iterable[Contestant], rows: list[Row], rounds: int, seconds: float,
    patience: Patience,
) -> Results:
    results: Results = {}
    order = list(contestants)
    begin = time.monotonic()
    for number in range(rounds):
        for row in rows:
            minutes = (time.monotonic() - begin) / 60
            print(f"bench: round {number + 1} of {rounds}, {row.title} ({minutes:.1f} min)",
                  file=sys.stderr, flush=True)
            for processes in row.processes:
                for contestant in order:
                    cell = results.setdefault((row.name, processes, contestant.name), Cell())
                    _add_sample(cell, stage, contestant, row, processes, seconds, patience)
        order.append(order.pop(0))  # so that each round starts with another contestant
    return results


def _add_sample(
    cell: Cell, stage: Stage, contestant: Contestant, row: Row, processes: int, seconds: float,
    patience: Patience,
) -> None:
    if cell.failure:
        return
    if not takes_part(contestant, row):
        cell.failure = NOT_ITS_ROW
        return
    try:
        cell.samples.append(
            take_quiet_sample(stage, contestant, row, processes, seconds, patience)
        )
    except Failed as failure:
        cell.samples.clear()
        cell.failure = str(failure)
        cell.could_mount = not isinstance(failure, CannotMount)
