# SPDX-License-Identifier: Apache-2.0
"""Compares cacheshim's measured ratios with the required ones. This is a report, not a test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from contestants import NATIVE, OURS, SHIMMED
from rows import Row
from summary import Summary, cpu


@dataclass(frozen=True)
class Bar:
    what: str
    asked: float
    seen: float
    at_most: bool = False
    unit: str = " ×"
    against: str = ""

    @property
    def met(self) -> bool:
        return self.seen <= self.asked if self.at_most else self.seen >= self.asked

    def line(self) -> str:
        sign = "≤" if self.at_most else "≥"
        verdict = "ok" if self.met else "below"
        if self.at_most and not self.met:
            verdict = "above"
        against = f"({self.against})" if self.against else ""
        asked = f"{sign} {self.asked:.4g}{self.unit}"
        seen = f"{self.seen:.3g}{self.unit}"
        return f"{verdict:6} {self.what:45} asked {asked:10} seen {seen:8} {against}".rstrip()


def bars(summary: Summary, rows: list[Row]) -> Iterator[Bar]:
    for row in rows:
        if row.name in ("write", "read"):
            yield from _against_native(summary, row)
        if row.shimmed_to_native:
            yield from _shimmed_against_native(summary, row)
        if not row.only_publishers:
            yield from _against_best_peer(summary, row)
        if row.name == "hit":
            yield from _cpu_of_a_hit(summary, row)
    for row in rows:
        if (seen := summary.ours_at_four(row.name)) is not None:
            yield Bar(f"{row.name}: rate at 4 processes over the rate at 1", 1.0, seen)


def _against_best_peer(summary: Summary, row: Row) -> Iterator[Bar]:
    for processes in row.processes:
        peer = summary.best_peer(row.name, processes)
        seen = peer and summary.ratio(row.name, processes, OURS, peer)
        if seen:
            yield Bar(f"{row.name}, {_count(processes)}, to the best FUSE peer",
                      row.times_best_peer, seen, against=peer)


def _cpu_of_a_hit(summary: Summary, row: Row) -> Iterator[Bar]:
    for processes in row.processes:
        peer = summary.peer_with_least_cpu(row.name, processes)
        seen = peer and summary.ratio(row.name, processes, OURS, peer, cpu)
        if seen:
            yield Bar(f"CPU of a hit, {_count(processes)}, to the least", 0.5, seen,
                      at_most=True, against=peer)


def _shimmed_against_native(summary: Summary, row: Row) -> Iterator[Bar]:
    for processes in row.processes:
        if seen := summary.ratio(row.name, processes, SHIMMED, NATIVE):
            yield Bar(f"{row.name}, {_count(processes)}, through the library", row.shimmed_to_native,
                      seen, against=NATIVE)


def _against_native(summary: Summary, row: Row) -> Iterator[Bar]:
    asked = {"write": 0.8, "read": 0.9}[row.name]
    if seen := summary.ratio(row.name, 1, OURS, NATIVE):
        yield Bar(f"{row.name}, to native", asked, seen, against=NATIVE)


def _count(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"
