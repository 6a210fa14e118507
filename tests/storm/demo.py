# SPDX-License-Identifier: Apache-2.0
"""The demonstration: compares the usual shared directory with cacheshim in one table."""

from __future__ import annotations

from typing import Any

from cachemount import CacheMount, CommandFailed
from cases import (
    PtxasLog,
    Verdict,
    expect_clean,
    expect_cubins,
    expect_single_flight,
    expect_warm,
    triton_jobs,
)
from jobs import FIRST_UID, storm
from lab import Lab
from passes import figures_of, measured_pass, shared_directory

JOBS = 8
KERNELS = 24
COLUMNS = (
    ("", "row", "<"),
    ("calls", "calls", ">"),
    ("errors", "errors", ">"),
    ("what errors", "kinds", "<"),
    ("ptxas runs", "ptxas_runs", ">"),
    ("compiled once", "compiled_once", ">"),
    ("CPU s", "cpu_s", ">"),
    ("wall s", "wall_s", ">"),
)


def plain(lab: Lab) -> dict[str, Any]:
    log = PtxasLog(lab)
    cache = str(shared_directory(lab, "plain"))
    jobs = triton_jobs(lab, "plain", JOBS, log, kernels=KERNELS, cache=cache, arguments=())
    return figures_of(storm(lab, jobs, "plain shared directory"), log)


def through_cacheshim(lab: Lab, verdict: Verdict) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs a cold pass of eight jobs and a warm pass of a ninth job, and verifies both; returns their figures."""
    with CacheMount(lab, lab.fresh("store")) as mount:
        cold_log, warm_log = PtxasLog(lab), PtxasLog(lab)
        jobs = triton_jobs(lab, "job", JOBS, cold_log, kernels=KERNELS, arguments=())
        cold, cold_figures = measured_pass(lab, mount, jobs, cold_log, "cacheshim, 8 jobs, cold")
        ninth = triton_jobs(lab, "ninth", 1, warm_log, kernels=KERNELS, arguments=())
        ninth[0].uid = FIRST_UID + JOBS
        warm, warm_figures = measured_pass(lab, mount, ninth, warm_log, "cacheshim, ninth job")
        expect_clean(verdict, cold, "8 jobs, cold")
        expect_clean(verdict, warm, "ninth job, warm")
        expect_warm(verdict, warm, warm_log, "ninth job, warm")
        expect_single_flight(verdict, cold_log, KERNELS, "8 jobs, cold")
        compiled = set(cold_log.digests())
        expect_cubins(verdict, mount.base, [cold, warm], compiled, KERNELS, "the cache directory")
    return cold_figures, warm_figures


def print_table(rows: list[dict[str, Any]]) -> None:
    cells = [[title for title, _, _ in COLUMNS]]
    for row in rows:
        cells.append([format_cell(row[key]) for _, key, _ in COLUMNS])
    widths = [max(len(line[index]) for line in cells) for index in range(len(COLUMNS))]
    for number, line in enumerate(cells):
        parts = [f"{text:{COLUMNS[i][2]}{widths[i]}}" for i, text in enumerate(line)]
        print("  ".join(parts).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def format_cell(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def explain(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    alone = JOBS * KERNELS
    print(
        f"""
Plain shared directory: {JOBS} jobs of {JOBS} users compile the same {KERNELS} kernels into one directory;
  {a["errors"]} of {a["calls"]} calls fail, because nobody may write where another user came first.
cacheshim, 8 jobs, cold: the same jobs, with LD_PRELOAD and a job name as the only change:
  {b["errors"]} errors; ptxas ran {b["ptxas_runs"]} times for {KERNELS} kernels (each job on its own: {alone}).
cacheshim, ninth job, warm: a later job of a ninth user finds everything there: {c["ptxas_runs"]} compiles.
ptxas is the compiler that each kernel not found in the cache needs; compiled once are those that it was run
for by one job alone, since the others waited for that one. CPU s counts the jobs and, in the
cacheshim rows, its daemon ({b["daemon_cpu_s"]:.1f} s cold, {c["daemon_cpu_s"]:.1f} s warm)."""
    )


def run(lab: Lab) -> int:
    verdict = Verdict("demo")
    print(
        f"{JOBS} jobs of {JOBS} users, each in its own PID namespace; {KERNELS} kernels;", end=" "
    )
    print("Triton as PyPI has it, unmodified", flush=True)
    a = plain(lab)
    try:
        b, c = through_cacheshim(lab, verdict)
    except (CommandFailed, OSError) as error:
        print(f"demo: cacheshim did not work: {error}")
        return 1
    print()
    print_table(
        [
            {"row": "plain shared directory", **a},
            {"row": "cacheshim, 8 jobs, cold", **b},
            {"row": "cacheshim, ninth job, warm", **c},
        ]
    )
    explain(a, b, c)
    for line in verdict.complaints[:20]:
        print(f"demo: FAILED: {line}")
    return 1 if verdict.complaints else 0
