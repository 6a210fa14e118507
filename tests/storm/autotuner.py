# SPDX-License-Identifier: Apache-2.0
"""Jobs that autotune the same kernel. A third of its configurations cannot be compiled."""

from __future__ import annotations

import statistics
from typing import Any

from cachemount import CacheMount
from cases import PtxasLog, Verdict, expect_clean, preload
from jobs import FIRST_UID, Command, Job, Storm, storm
from lab import Lab
from passes import figures_of, measured_pass, shared_directory

JOBS = 8
CONFIGS = 24
MOST_WALL = 1.1  # relative to the same jobs with private caches
MOST_WAIT_S = 1.0


def tuners(lab: Lab, prefix: str, log: PtxasLog, caches: list[str] | None = None,
           count: int = JOBS) -> list[Job]:
    """Creates `count` jobs; if `caches` is given, job i uses the directory caches[i], otherwise all use cacheshim."""
    jobs = []
    for index in range(count):
        name = f"{prefix}-{index}"
        environment = {"TRITON_CACHE_DIR": caches[index]} if caches else preload(lab, name)
        command: Command = [lab.python, lab.stage / "tuner.py", "--configs", str(CONFIGS)]
        jobs.append(Job(name, FIRST_UID + index, command, {**environment, **log.environment()}))
    return jobs


def expect_own_failures(verdict: Verdict, done: Storm) -> None:
    """Verifies that in every job, exactly the configurations that cannot be compiled have failed."""
    expected = [factor for factor in range(CONFIGS) if factor % 3 == 2]
    for one in done.results:
        seen = one.report["failed"] if one.report else None
        verdict.expect(seen == expected, f"{one.job.name} saw {seen} fail")


def longest_wait(done: Storm) -> float:
    return max(one.report["longest_wait"] for one in done.results if one.report)


def through_cacheshim(lab: Lab, verdict: Verdict, count: int = JOBS) -> tuple[dict[str, Any], float]:
    """Runs one pass; returns its figures, and the longest wait for a configuration that fails."""
    with CacheMount(lab, lab.fresh("store")) as mount:
        log = PtxasLog(lab)
        done, figures = measured_pass(lab, mount, tuners(lab, "tuner", log, count=count), log, "autotuner")
        expect_clean(verdict, done, "autotuner")
        expect_own_failures(verdict, done)
        timeouts = mount.stats()["flight_timeouts"]
        verdict.expect(timeouts == 0, f"{timeouts} lookups have waited for nothing until the timeout")
        return figures, longest_wait(done)


def scenario(lab: Lab, verdict: Verdict, *, jobs: int) -> None:
    verdict.figures, _ = through_cacheshim(lab, verdict, jobs)
    compiled = CONFIGS - CONFIGS // 3
    runs = verdict.figures["ptxas_runs"]
    verdict.expect(compiled <= runs < jobs * compiled, f"{runs} ptxas runs: the jobs share nothing")


def private(lab: Lab) -> dict[str, Any]:
    log = PtxasLog(lab)
    caches = [str(shared_directory(lab, f"private-{index}")) for index in range(JOBS)]
    return figures_of(storm(lab, tuners(lab, "private", log, caches), "private caches"), log)


def told(figures: dict[str, Any]) -> str:
    return f"wall {figures['wall_s']} s, CPU {figures['cpu_s']} s, ptxas runs {figures['ptxas_runs']}"


def run(lab: Lab, count: int) -> int:
    """Runs `count` rounds, each with private caches and then with cacheshim; compares wall times and waits with
    MOST_WALL and MOST_WAIT_S. Returns the exit status."""
    verdict = Verdict("autotuner")
    ratios, waits = [], []
    print(f"{JOBS} jobs, {CONFIGS} configurations, of which {CONFIGS // 3} fail")
    for _ in range(count):
        alone = private(lab)
        print(f"private caches: {told(alone)}", flush=True)
        shared, wait = through_cacheshim(lab, verdict)
        print(f"  cacheshim: {told(shared)}, longest wait on a failing name {wait:.3f} s", flush=True)
        ratios.append(shared["wall_s"] / alone["wall_s"])
        waits.append(wait)
    ratio = statistics.median(ratios)
    print(f"wall {ratio:.2f} times, the median of {count} (bar: {MOST_WALL}); "
          f"longest wait {max(waits):.3f} s (bar: {MOST_WAIT_S:.0f})")
    verdict.expect(ratio <= MOST_WALL, f"wall is {ratio:.3f} times that of private caches")
    verdict.expect(max(waits) <= MOST_WAIT_S, f"a job waited {max(waits):.3f} s for a name that fails")
    for line in verdict.complaints:
        print(f"autotuner: FAILED: {line}")
    return 1 if verdict.complaints else 0
