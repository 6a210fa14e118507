# SPDX-License-Identifier: Apache-2.0
"""Measurements that do not fit into rows: a walk over very many files, very many views, mounts of a very large store.

The walk and the mounts use a tmpfs, because creating 1,000,000 files takes only seconds there, and only the daemon is
measured.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bars import Bar
from contestants import OURS, Contestant, named
from stage import Failed, Mounted, Stage, run

WALKERS = (OURS, "mergerfs")
WALK_KEYS = 100_000
LARGE_STORE_KEYS = 125_000
FILES_PER_KEY = 8
VIEWS = 1000
MOUNTS = 5
MIB = 2**20


@dataclass(frozen=True)
class Walk:
    contestant: str
    entries: int
    seconds: float
    daemon_cpu_seconds: float
    resident: tuple[int, int, int]  # bytes before the walk, after it, and once the kernel has dropped all names

    @property
    def bytes_a_file(self) -> float:
        return (self.resident[1] - self.resident[0]) / (WALK_KEYS * FILES_PER_KEY)

    @property
    def bytes_a_file_kept(self) -> float:
        return (self.resident[2] - self.resident[0]) / (WALK_KEYS * FILES_PER_KEY)

    @property
    def path_spelling(self) -> float:
        taken = self.resident[1] - self.resident[0]
        return (self.resident[1] - self.resident[2]) / taken if taken > 0 else 1.0

    def line(self) -> str:
        before, after, forgotten = (size / MIB for size in self.resident)
        return (f"{self.contestant:12} {self.entries} entries in {self.seconds:.1f} s; daemon "
                f"{self.daemon_cpu_seconds:.1f} s of CPU, {before:.0f} MiB before, {after:.0f} after "
                f"({self.bytes_a_file:.0f} B a file), {forgotten:.0f} once forgotten "
                f"({self.bytes_a_file_kept:.0f} B a file)")

    def bars(self) -> Iterator[Bar]:
        yield Bar("walk over 800,000 files", 60, self.seconds, at_most=True, unit=" s")
        yield Bar("walk: the daemon's memory a file", 170, self.bytes_a_file, at_most=True,
                  unit=" B")
        yield Bar("walk: part of it given back once forgotten", 0.9, self.path_spelling)


@contextmanager
def in_memory(stage: Stage, keys: int) -> Iterator[Stage]:
    """Yields a stage like `stage`, but on a separate tmpfs. Its prepare() creates a base of `keys` keys of empty files.
    """
    area = stage.area / "memory"
    area.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "nr_inodes=0", "tmpfs", area], 10)
    try:
        yield replace(stage, area=area, keys=keys, empty_files=True)
    finally:
        run(["umount", "-R", area], 60)
        area.rmdir()


def walks(stage: Stage) -> list[Walk]:
    with in_memory(stage, WALK_KEYS) as large:
        large.prepare(with_native=False)
        return [walk(large, named(name)) for name in WALKERS]


def walk(stage: Stage, contestant: Contestant) -> Walk:
    _drop_names()
    with stage.mounted(contestant) as mounted:
        before, cpu_before = mounted.resident_bytes(), mounted.cpu_seconds()
        told = stage.work("walk", mounted.directory)
        cpu = mounted.cpu_seconds() - cpu_before
        after = mounted.resident_bytes()
        _drop_names()
        forgotten = _settled(mounted)
    return Walk(contestant.name, int(told["entries"]), told["seconds"], cpu,
                (before, after, forgotten))


def _drop_names() -> None:
    """Makes the kernel drop all cached dentries and inodes that are not in use."""
    Path("/proc/sys/vm/drop_caches").write_text("2\n")


def _settled(mounted: Mounted, still_s: float = 2, at_most_s: float = 30) -> int:
    """Waits until the daemons' resident memory has not changed for `still_s` seconds, but at most `at_most_s` seconds:
    the kernel does not send all FORGET requests at once. Returns the size of that memory in bytes."""
    end = time.monotonic() + at_most_s
    last, since = mounted.resident_bytes(), time.monotonic()
    while time.monotonic() < min(since + still_s, end):
        time.sleep(0.1)
        if (seen := mounted.resident_bytes()) != last:
            last, since = seen, time.monotonic()
    return last


def views(stage: Stage) -> Iterator[str]:
    """Measures many concurrent jobs, each with its own user, its own view and one process."""
    native = _crowd(stage, stage.native)
    with stage.mounted(named(OURS)) as mounted:
        before = mounted.resident_bytes()
        ours = _crowd(stage, stage.mount_point / "triton")
        each = (mounted.resident_bytes() - before) / VIEWS
    yield (f"{VIEWS} views at once, 3 files read in each: {ours:.2f} s, {each / 1024:.1f} KiB of "
           f"the daemon's memory a view; as many processes on a plain directory: {native:.2f} s")


def _crowd(stage: Stage, directory: Path) -> float:
    """Starts a process per job. Returns the seconds until all have read their files; no process exits before that."""
    stay_read, stay = os.pipe()
    begin = time.monotonic()
    crowd = []
    try:
        for number in range(VIEWS):
            user = stage.user + number
            crowd.append(subprocess.Popen(
                [str(stage.worker), "look", str(directory)], stdin=stay_read,
                stdout=subprocess.PIPE, user=user, group=user, extra_groups=[],
                env={**os.environ, "CACHESHIM_JOB": f"view-{number}"},
            ))
        for one in crowd:
            if not one.stdout.readline():
                raise Failed("a view could not be read")
        return time.monotonic() - begin
    finally:
        os.close(stay)
        os.close(stay_read)
        for one in crowd:
            one.stdout.close()
            one.wait()


def mount_times(stage: Stage) -> Iterator[str]:
    """Measures how long a mount takes, over an empty store and over one with very many files."""
    told = []
    for keys in (0, LARGE_STORE_KEYS):
        with in_memory(stage, keys) as large:
            large.prepare(with_native=False)
            told.append((keys * FILES_PER_KEY, _mount_seconds(large)))
    yield "mount: " + ", ".join(
        f"{1000 * seconds:.0f} ms over {files:,} files" for files, seconds in told
    )


def _mount_seconds(stage: Stage) -> float:
    taken = []
    for _ in range(MOUNTS):
        with stage.mounted(named(OURS)) as mounted:
            taken.append(mounted.seconds)
    return statistics.median(taken)
