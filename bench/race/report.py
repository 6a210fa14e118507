# SPDX-License-Identifier: Apache-2.0
"""Formats the results: as a text table for people, and as JSON for programs."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from bars import Bar
from contestants import BEFORE, NATIVE, OURS, SHIMMED, SHIMMED_BEFORE
from rows import Row
from sampling import NOT_ITS_ROW, QUIET_CORES, Results
from summary import Summary, cpu, rate

LEGEND = f"""\
native  operations (or MiB) a second on a plain directory of the same disk, then CPU microseconds per
        operation
others  rate as a multiple of native's (1 = as fast, 0.1 = a tenth), then CPU microseconds per
        operation, of the calling program and of the daemon together
p       processes that make calls at the same time
spread  of the samples of one cell: half their range, divided by their median (of the middle cell of
        the line)
~       disturbed: in half of the samples or more, other processes used over {QUIET_CORES} cores
–       no result; the reasons of failures are below"""


def about(directory: Path, samples: int, requests: str) -> str:
    """Returns a text about the machine: the properties that influence the figures."""
    systems = subprocess.run(["findmnt", "-n", "-o", "FSTYPE", "-T", directory], capture_output=True,
                             text=True, check=True).stdout.split()
    system = systems[-1]  # the topmost mount
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    taken = f"; {samples} samples of each cell, medians" if samples else ""
    return (f"{os.cpu_count()} cores ({_cpu_model()}), {memory:.0f} GiB of memory, "
            f"kernel {platform.release().split('-')[0]}, {system}{taken}; cacheshim's requests come "
            f"by {requests}")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def short(value: float) -> str:
    """Returns the value with three significant digits, and k from 10,000 or M from 1,000,000. From 1,000 to 10,000,
    returns the value as an integer."""
    for limit, factor, unit in ((1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if value >= limit:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def table(summary: Summary, rows: list[Row], names: list[str]) -> Iterator[str]:
    yield f"{'':31} p{names[0]:>20}" + "".join(f"{name:>15}" for name in names[1:]) + "  spread"
    for row in rows:
        for processes in row.processes:
            cells = (_cell(summary, row, processes, name) for name in names)
            yield f"{row.title:31} {processes}{''.join(cells)} {_spread(summary, row, processes, names)}"


def _cell(summary: Summary, row: Row, processes: int, name: str) -> str:
    width = 20 if name == NATIVE else 15
    value = summary.median(row.name, processes, name, rate)
    microseconds = summary.median(row.name, processes, name, cpu)
    if name == NATIVE:
        told = value and f"{short(value)}{row.unit}"
    else:
        told = _three_digits(summary.ratio(row.name, processes, name, NATIVE))
    if not told and microseconds is not None:
        told = value and f"{short(value)}{row.unit}"
    if not told:
        return f"{'–':>{width}}"
    noise = "~" if summary.noisy(row.name, processes, name) else ""
    return f"{noise + told:>{width - 6}}{short(microseconds):>6}"


def _three_digits(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}" if ratio < 0.1 else f"{ratio:.2f}"


def _spread(summary: Summary, row: Row, processes: int, names: list[str]) -> str:
    known = [summary.spread(row.name, processes, name) for name in names]
    known = sorted(value for value in known if value is not None)
    return f"±{100 * known[len(known) // 2]:.0f} %".rjust(7) if known else ""


def comparison(summary: Summary, rows: list[Row]) -> Iterator[str]:
    """Yields lines that compare this build with another: medians of the ratios of the two rates within a round."""
    yield f"{'this build over the other':31} p{'mount':>10}{'shimmed':>10}"
    for row in rows:
        for processes in row.processes:
            ratios = (summary.ratio(row.name, processes, *pair)
                      for pair in ((OURS, BEFORE), (SHIMMED, SHIMMED_BEFORE)))
            told = "".join(f"{_three_digits(ratio) or '–':>10}" for ratio in ratios)
            yield f"{row.title:31} {processes}{told}"


def reasons(results: Results) -> Iterator[str]:
    seen = set()
    for (row, _, name), cell in results.items():
        if cell.failure and cell.failure != NOT_ITS_ROW and (row, name) not in seen:
            seen.add((row, name))
            yield f"– {name}, {row}: {cell.failure.removeprefix('race_worker: ')}"


def text(
    summary: Summary, rows: list[Row], names: list[str], lines: list[str], bars: list[Bar]
) -> str:
    parts = ["\n".join(lines)]
    if rows:
        parts += ["\n".join(table(summary, rows, names)), LEGEND, "\n".join(reasons(summary.results))]
    if rows and BEFORE in names:
        parts.append("\n".join(comparison(summary, rows)))
    if bars:
        parts.append("Bars\n" + "\n".join(f"  {bar.line()}" for bar in bars))
    return "\n\n".join(part for part in parts if part)


def as_json(summary: Summary, bars: list[Bar], lines: list[str]) -> dict[str, object]:
    cells = [
        {"row": row, "processes": processes, "contestant": name, "failure": cell.failure,
         "samples": [asdict(sample) for sample in cell.samples]}
        for (row, processes, name), cell in summary.results.items()
    ]
    return {"about": lines, "cells": cells,
            "bars": [{**asdict(bar), "met": bar.met} for bar in bars]}
