# SPDX-License-Identifier: Apache-2.0
"""Measures how much time and CPU single flight saves: alternately runs the same cold jobs in a plain directory and
through cacheshim."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from cachemount import CacheMount
from cases import PtxasLog, Verdict, expect_clean, expect_single_flight, triton_jobs
from jobs import FIRST_UID, Storm, storm
from lab import Lab
from passes import figures_of, measured_pass, shared_directory
from scenarios import own_profile

JOBS = 8
KERNELS = 24
MOST = {"cpu_s": 0.4, "wall_s": 0.5}  # relative to the plain directory
SHIMMED = "cacheshim"
UNSHIMMED = "without the library, in a family of one's own"


def plain(lab: Lab) -> dict[str, Any]:
    """Runs all jobs as one user, so that no access is denied: the best case for a plain directory."""
    log = PtxasLog(lab)
    cache = str(shared_directory(lab, "plain"))
    jobs = triton_jobs(lab, "plain", JOBS, log, kernels=KERNELS, cache=cache, arguments=())
    for job in jobs:
        job.uid = FIRST_UID
    return figures_of(storm(lab, jobs, "plain directory, one user"), log)


def cold(lab: Lab, verdict: Verdict, what: str, unshimmed: str | None = None) -> dict[str, Any]:
    with CacheMount(lab, lab.fresh("store")) as mount:
        log = PtxasLog(lab)
        jobs = triton_jobs(
            lab, "job", JOBS, log, kernels=KERNELS, arguments=(), unshimmed=unshimmed
        )
        done: Storm
        done, figures = measured_pass(lab, mount, jobs, log, what)
        expect_clean(verdict, done, what)
        expect_single_flight(verdict, log, KERNELS, what)
    return figures


def unshimmed(lab: Lab, verdict: Verdict) -> dict[str, Any]:
    with own_profile(lab) as family:
        return cold(lab, verdict, UNSHIMMED, family)


def told(figures: dict[str, Any]) -> str:
    return (
        f"ptxas runs {figures['ptxas_runs']}, CPU {figures['cpu_s']} s (daemon "
        f"{figures['daemon_cpu_s']}), wall {figures['wall_s']} s, errors {figures['errors']}"
    )


def run(lab: Lab, count: int) -> int:
    verdict = Verdict("compare")
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    print(f"{JOBS} cold jobs, {KERNELS} kernels; a plain directory is of one user, the others of {JOBS}")
    for _ in range(count):
        theirs = plain(lab)
        print(f"plain directory: {told(theirs)}", flush=True)
        for what, ours in (
            (SHIMMED, cold(lab, verdict, SHIMMED)),
            (UNSHIMMED, unshimmed(lab, verdict)),
        ):
            print(f"  {what}: {told(ours)}", flush=True)
            for key in MOST:
                ratios[what, key].append(ours[key] / theirs[key])
    for (what, key), found in ratios.items():
        median = statistics.median(found)
        print(f"{what}: {key} {median:.2f} times, the median of {count} (bar: {MOST[key]})")
        verdict.expect(
            median <= MOST[key], f"{what}: {key} is {median:.3f} times that of a plain directory"
        )
    for line in verdict.complaints:
        print(f"compare: FAILED: {line}")
    return 1 if verdict.complaints else 0
