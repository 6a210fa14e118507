#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the race of overlay file systems. scripts/bench starts this program in separate namespaces.

Exit status: 0 if every contestant could be mounted, else 1.
"""

from __future__ import annotations

import argparse
import json
import mmap
import multiprocessing
import os
import shutil
import sys
from pathlib import Path

import report
import scale
from bars import Bar, bars
from contestants import (
    CONTESTANTS, LIBRARY, LIBRARY_BEFORE, OURS, OURS_AND_NATIVE, WITH_ANOTHER_BUILD, Contestant,
)
from rows import ROWS, Row
from sampling import Patience, Results, race
from stage import Stage, run
from summary import Summary

KEYS = 2000
KEYS_QUICK = 500
OWN_DISK_BYTES = 8 << 30  # the file is sparse: blocks that are never written take no memory
MOST_TOUCHED_BYTES = 8 << 30
# Most jobs do not run as root. A mount may also need more checks for root, who may enter any view.
USER = 20001


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.split(".")[0])
    parser.add_argument("--quick", action="store_true",
                        help="three short samples of each cell, with a quarter of the base")
    parser.add_argument("--rows", default="", help="only these rows: their names, separated by commas")
    parser.add_argument("--ours", action="store_true",
                        help="only the native directory, and cacheshim with and without the library")
    parser.add_argument("--before", type=Path, metavar="DIST",
                        help="only native, cacheshim, and another build of cacheshim: DIST/bin/cacheshim and "
                             "DIST/lib/libcacheshim.so")
    parser.add_argument("--samples", type=int, help="the number of samples of each cell (7; with --quick 3)")
    parser.add_argument("--patience", type=float, default=600, metavar="SECONDS",
                        help="the total time for repeating disturbed samples (600; with --quick 60)")
    parser.add_argument("--walk", action="store_true",
                        help="a walk over 800,000 files, instead of the race (or in addition to --rows)")
    parser.add_argument("--views", action="store_true",
                        help="1,000 views, and a store of 1,000,000 files, instead of the race (or in addition to "
                             "--rows)")
    parser.add_argument("--user", type=int, default=USER, metavar="UID",
                        help=f"the user that runs the measured operations ({USER})")
    parser.add_argument("--own-disk", action="store_true",
                        help="on a separate ext4 in memory, which no other program uses")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    parser.add_argument("--cacheshim", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--library", type=Path, required=True, help=argparse.SUPPRESS)
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


def enter(arguments: argparse.Namespace) -> tuple[Path, Path]:
    """Makes the area, the worker and the libraries available at paths that every user can enter, in this mount
    namespace only. Returns the paths of the area and of the worker."""
    inside = Path(os.environ["CACHESHIM_LAB"]) / "race"
    inside.mkdir()
    if arguments.own_disk:
        mount_own_disk(inside)
    else:
        run(["mount", "--bind", arguments.area, inside], 10)
    shutil.copy(arguments.library, inside / LIBRARY)
    if arguments.before:
        shutil.copy(arguments.before / "lib" / LIBRARY, inside / LIBRARY_BEFORE)
    return inside, Path(shutil.copy(arguments.worker, inside / "race_worker"))


def mount_own_disk(directory: Path) -> None:
    """Mounts a journaled ext4 from a file in a tmpfs; both disappear with this mount namespace."""
    run(["mount", "-t", "tmpfs", "-o", "size=100%,mode=0700", "tmpfs", directory], 10)
    image = directory / "image"
    with open(image, "wb") as file:
        file.truncate(OWN_DISK_BYTES)
    run(["mkfs.ext4", "-q", image], 60)
    run(["mount", "-o", "loop", image, directory], 10)
    directory.chmod(0o755)


def touch_memory() -> None:
    """Touches half of the free memory (at most 8 GiB), and frees it again.

    A virtual machine may get a page from its host only at the first touch, which takes 10 to 20 µs. That is longer
    than a whole hit, and would count against the contestant that touches the page first.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = min(free // 2, MOST_TOUCHED_BYTES)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, size, flags=flags).close()


def contestants_of(arguments: argparse.Namespace) -> tuple[Contestant, ...]:
    if arguments.before:
        return WITH_ANOTHER_BUILD
    return OURS_AND_NATIVE if arguments.ours else CONTESTANTS


def take_race(stage: Stage, arguments: argparse.Namespace) -> tuple[Results, list[Row], int]:
    if (arguments.walk or arguments.views) and not arguments.rows:
        return {}, [], 0
    rows = chosen_rows(arguments.rows)
    samples = arguments.samples or (3 if arguments.quick else 7)
    patience = Patience(60 if arguments.quick else arguments.patience, attempts=3)
    seconds = 0.2 if arguments.quick else 0.4
    some = contestants_of(arguments)
    return race(stage, some, rows, samples, seconds, patience), rows, samples


def take_scale(stage: Stage, arguments: argparse.Namespace) -> tuple[list[str], list[Bar]]:
    lines, seen = [], []
    if arguments.walk:
        for one in scale.walks(stage):
            lines.append("walk: " + one.line())
            seen += one.bars() if one.contestant == OURS else []
    if arguments.views:
        lines += [*scale.views(stage), *scale.mount_times(stage)]
    return lines, seen


def main() -> int:
    arguments = parse_arguments()
    keys = KEYS_QUICK if arguments.quick else KEYS
    area, worker = enter(arguments)
    before = arguments.before and arguments.before / "bin" / "cacheshim"
    stage = Stage(area, arguments.cacheshim, worker, keys, arguments.user, before=before)
    stage.prepare()
    # Runs in a separate process: if a cgroup's memory limit is lower than the free memory, the OOM killer kills only
    # that process.
    toucher = multiprocessing.Process(target=touch_memory)
    toucher.start()
    toucher.join()
    requests = stage.way_of_requests()
    results, rows, samples = take_race(stage, arguments)
    lines, seen = take_scale(stage, arguments)
    summary = Summary(results)
    seen = [*bars(summary, rows), *seen]
    about = report.about(area, samples, requests)
    names = [one.name for one in contestants_of(arguments)]
    print(report.text(summary, rows, names, [about, *lines], seen))
    if arguments.json:
        arguments.json.write_text(
            json.dumps(report.as_json(summary, seen, [about, *lines]), indent=1) + "\n")
    return 0 if all(cell.could_mount for cell in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
