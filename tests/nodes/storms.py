# SPDX-License-Identifier: Apache-2.0
"""Storms: processes on several machines that need the same kernels at the same time."""

import collections
import json
import pathlib
import time

LIB = pathlib.Path(__file__).resolve().parents[1] / "lib"
WORKER = pathlib.Path(__file__).with_name("storm_worker.py")
KERNELS = 24
JOBS = 4  # on each machine
FIRST_UID = 20001


def start_storm(nodes, cache, env=None):
    """Starts JOBS processes on each node, each with its own job and user, and returns them."""
    start = time.time() + 5
    started = []
    for place, node in enumerate(nodes):
        for job in range(JOBS):
            number = place * JOBS + job
            started.append(node.start(
                ["/usr/bin/python3", "-B", WORKER, LIB, cache, KERNELS, number, start], uid=FIRST_UID + number,
                env={"CACHESHIM_JOB": f"job{number}", **(env or {})}))
    return started


def results_of(commands):
    """Returns how often each kernel was built, and all errors."""
    built, errors = collections.Counter(), []
    for command in commands:
        result = command.wait(240)
        if result.returncode:
            errors.append(f"{result.returncode}: {result.stderr}")
            continue
        one = json.loads(result.stdout)
        built.update(one["built"])
        errors += one["errors"]
    return built, errors
