# SPDX-License-Identifier: Apache-2.0
"""The scenario of triton#11512: many new processes compile the same kernels at the same time, with a cache on NFS. The
issue's reporter saw 27 of 7,680 compiles fail."""

import json
import pathlib

import mounts
import pytest
from lab import POINT
from storms import FIRST_UID

WORKER = pathlib.Path(__file__).with_name("compiling_process.py")
PROCESSES, KERNELS = 16, 8
CACHE_PY = "build/venv/triton/lib/python3.*/site-packages/triton/runtime/cache.py"


def compile_in_rounds(nodes, cache, rounds, env=None):
    """Compiles new kernels in each round. On all nodes, the processes have the same user and, like the ranks of a SLURM
    job, the same job. Returns how many kernels were built in each round, and all errors."""
    found = sorted(mounts.REPOSITORY.glob(CACHE_PY))
    if not found:
        pytest.skip(f"needs Triton ({CACHE_PY})")
    builds, errors = [], []
    for number in range(rounds):
        # Without its site module, Python starts in two thirds of the time.
        started = [nodes[process % len(nodes)].start(
            ["/usr/bin/python3", "-IS", "-B", WORKER, found[0], cache, number, KERNELS], uid=FIRST_UID,
            env={"CACHESHIM_JOB": "4711", **(env or {})}) for process in range(PROCESSES)]
        for one in started:
            assert one.read_line() == "ready\n", one.wait().stderr
        for one in started:
            one.write("begin\n")
        results = [one.wait() for one in started]
        assert [one.stderr for one in results if one.returncode] == []
        results = [json.loads(one.stdout) for one in results]
        builds.append(sum(one["built"] for one in results))
        errors += [f"round {number}: {error}" for one in results for error in one["errors"]]
    return builds, errors


ROUNDS = [3, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout_s(3000)])]


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("is_preloaded", [False, True], ids=["on the mount", "preloaded"])
def test_no_compile_fails(two_nodes, store, mount_on, is_preloaded, rounds):
    for node in two_nodes:
        mount_on(node, store)
    env = {"LD_PRELOAD": mounts.LIBRARY, "CACHESHIM_MOUNT": POINT} if is_preloaded else {}
    builds, errors = compile_in_rounds(two_nodes, f"{POINT}/triton", rounds, env)
    assert errors == []
    assert builds == [KERNELS] * rounds


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_native_directory_compiles_kernels_several_times(two_nodes, store, rounds):
    """Runs without cacheshim, to show that the processes do compile at the same time."""
    two_nodes[0].run(f"mkdir -m 1777 {store}/triton", check=True)
    builds, errors = compile_in_rounds(two_nodes, f"{store}/triton", rounds)
    print(f"{sum(builds)} builds in {rounds} rounds; {len(errors)} failed:", *errors, sep="\n")
    assert sum(builds) > KERNELS * rounds
