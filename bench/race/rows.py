# SPDX-License-Identifier: Apache-2.0
"""The rows of the race, as docs/benchmarks.md defines them and race_worker runs them."""

from __future__ import annotations

from dataclasses import dataclass

NEVER = "never"
BY_DEFAULT = None


@dataclass(frozen=True)
class Row:
    name: str  # the row's name in race_worker
    title: str
    processes: tuple[int, ...] = (1, 4)
    unit: str = "/s"
    changes: bool = False  # the row changes the tree, which must be repaired afterwards
    publish: str | None = NEVER
    only_publishers: bool = False
    times_best_peer: float = 1.0  # the required ratio of the mount's rate to the best peer's
    shimmed_to_native: float | None = None  # the required ratio of the rate with the library to the native rate


ROWS = (
    Row("first", "first touch after mount", times_best_peer=1.3, shimmed_to_native=0.95),
    Row("hit", "hit: open, fstat, read, close", times_best_peer=2.0, shimmed_to_native=0.97),
    Row("stat", "stat", times_best_peer=0.95, shimmed_to_native=1.0),
    Row("miss-key", "miss, new key", shimmed_to_native=1.0),
    Row("miss-file", "miss, new file of a known key", shimmed_to_native=1.0),
    Row("miss-again", "repeated miss", times_best_peer=0.95, shimmed_to_native=1.0),
    Row("list", "list a key", shimmed_to_native=0.9),
    Row("scan", "list a key, lstat of each file", shimmed_to_native=0.9),
    Row("import", "import: stat, list, stat, read", shimmed_to_native=0.9),
    Row("commit", "commit of 8 KiB", changes=True, times_best_peer=1.2),
    Row("commit-published", "commit, published", changes=True, publish=BY_DEFAULT,
        only_publishers=True),
    Row("overwrite", "commit over a base file", changes=True, times_best_peer=1.2),
    Row("copy-up", "copy-up of 30 KiB", changes=True, times_best_peer=1.2),
    Row("write", "sequential write, 256 MiB", (1,), unit="MiB/s", changes=True),
    Row("read", "sequential read, 256 MiB", (1,), unit="MiB/s", changes=True),
)
