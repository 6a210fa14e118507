# SPDX-License-Identifier: Apache-2.0
"""Figures of a race: medians over its rounds, and ratios within a round.

The speed of a machine may change by half within two minutes, for all contestants alike. So each ratio compares samples
of the same round, which are taken within seconds of each other, and the report shows the median of the ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from contestants import CONTESTANTS, NATIVE, OURS
from sampling import Cell, Results, Sample

Measure = Callable[[Sample], float]


def rate(sample: Sample) -> float:
    return sample.rate


def cpu(sample: Sample) -> float:
    return sample.cpu_us


@dataclass(frozen=True)
class Summary:
    results: Results

    def cell(self, row: str, processes: int, contestant: str) -> Cell:
        return self.results.get((row, processes, contestant)) or Cell(failure="not raced")

    def median(self, row: str, processes: int, contestant: str, measure: Measure) -> float | None:
        samples = self.cell(row, processes, contestant).samples
        return statistics.median(map(measure, samples)) if samples else None

    def ratio(
        self, row: str, processes: int, contestant: str, other: str, measure: Measure = rate
    ) -> float | None:
        mine = self.cell(row, processes, contestant).samples
        theirs = self.cell(row, processes, other).samples
        pairs = [measure(a) / measure(b) for a, b in zip(mine, theirs) if measure(b)]
        return statistics.median(pairs) if pairs else None

    def spread(self, row: str, processes: int, contestant: str) -> float | None:
        """Returns the spread of the samples: half their range, divided by their median."""
        rates = [sample.rate for sample in self.cell(row, processes, contestant).samples]
        return (max(rates) - min(rates)) / 2 / statistics.median(rates) if rates else None

    def noisy(self, row: str, processes: int, contestant: str) -> bool:
        """Whether other processes disturbed at least half of the samples."""
        samples = self.cell(row, processes, contestant).samples
        return sum(not sample.quiet for sample in samples) * 2 >= max(len(samples), 1)

    def best_peer(self, row: str, processes: int) -> str | None:
        """Returns the fastest of the other FUSE overlays."""
        return self._first(row, processes, lambda name: -self._known(row, processes, name, rate))

    def peer_with_least_cpu(self, row: str, processes: int) -> str | None:
        """Returns the peer that uses the least CPU time per operation."""
        return self._first(row, processes, lambda name: self._known(row, processes, name, cpu))

    def _first(self, row: str, processes: int, key: Callable[[str], float]) -> str | None:
        peers = [
            one.name for one in CONTESTANTS
            if one.is_fuse_peer and self.cell(row, processes, one.name).samples
        ]
        return min(peers, key=key, default=None)

    def _known(self, row: str, processes: int, contestant: str, measure: Measure) -> float:
        return statistics.median(map(measure, self.cell(row, processes, contestant).samples))

    def ours_at_four(self, row: str) -> float | None:
        """Returns cacheshim's rate with four processes, divided by its rate with one."""
        one = self.cell(row, 1, OURS).samples
        four = self.cell(row, 4, OURS).samples
        pairs = [b.rate / a.rate for a, b in zip(one, four)]
        return statistics.median(pairs) if pairs else None
