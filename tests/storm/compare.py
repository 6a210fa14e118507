# SPDX-License-Identifier: Apache-2.0
"""What single flight saves: the same cold jobs on one plain folder and through cacheshim, in turns."""

from __future__ import annotations

import statistics
from typing import Any

from cachemount import CacheMount
from cases import PtxasLog, Verdict, expect_clean, expect_single_flight, triton_jobs
from jobs import FIRST_UID, Storm, storm
from lab import Lab
from passes import figures_of, measured_pass, shared_folder

JOBS = 8
KERNELS = 24
MOST_CPU = 0.4
MOST_WALL = 0.5


def plain(lab: Lab) -> dict[str, Any]:
    """All of one user, so that nobody is refused: the best that a plain folder can do."""
    log = PtxasLog(lab)
    cache = str(shared_folder(lab, "plain"))
    jobs = triton_jobs(lab, "plain", JOBS, log, kernels=KERNELS, cache=cache, arguments=())
    for job in jobs:
        job.uid = FIRST_UID
    return figures_of(storm(lab, jobs, "plain folder, one user"), log)


def cold(lab: Lab, verdict: Verdict) -> dict[str, Any]:
    with CacheMount(lab, lab.fresh("store")) as mount:
        log = PtxasLog(lab)
        jobs = triton_jobs(lab, "job", JOBS, log, kernels=KERNELS, arguments=())
        done: Storm
        done, figures = measured_pass(lab, mount, jobs, log, "cacheshim, 8 users, cold")
        expect_clean(verdict, done, "8 users, cold")
        expect_single_flight(verdict, log, KERNELS, "8 users, cold")
    return figures


def ratio(rounds: list[tuple[dict[str, Any], dict[str, Any]]], key: str) -> float:
    return statistics.median(ours[key] / theirs[key] for theirs, ours in rounds)


def run(lab: Lab, count: int) -> int:
    verdict = Verdict("compare")
    rounds = []
    print(f"{JOBS} cold jobs, {KERNELS} kernels: plain folder of one user | cacheshim, {JOBS} users")
    for _ in range(count):
        theirs, ours = plain(lab), cold(lab, verdict)
        rounds.append((theirs, ours))
        print(
            f"ptxas runs {theirs['ptxas_runs']} | {ours['ptxas_runs']}, "
            f"CPU {theirs['cpu_s']} s | {ours['cpu_s']} s (daemon {ours['daemon_cpu_s']} s), "
            f"wall {theirs['wall_s']} s | {ours['wall_s']} s, "
            f"errors {theirs['errors']} | {ours['errors']}",
            flush=True,
        )
    for key, most in (("cpu_s", MOST_CPU), ("wall_s", MOST_WALL)):
        found = ratio(rounds, key)
        print(f"{key}: {found:.2f} times, the median of {count} (bar: {most})")
        verdict.expect(found <= most, f"{key} is {found:.2f} times that of a plain folder")
    for line in verdict.complaints:
        print(f"compare: FAILED: {line}")
    return 1 if verdict.complaints else 0
