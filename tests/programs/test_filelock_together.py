# SPDX-License-Identifier: Apache-2.0
"""Two processes use filelock's own locks: in two views, in one view, and in a view and the bare store."""

import os
import subprocess

import mounts
import pytest
from test_filelock import VENVS, params

COUNT = 150
SECONDS = 100
TAKE_TURNS = """
import os, sys
import filelock
kind, path, guard, count = sys.argv[1:]
lock = getattr(filelock, kind)(path)
for _ in range(int(count)):
    with lock.acquire(timeout=60, poll_interval=0.001):
        os.close(os.open(guard, os.O_CREAT | os.O_EXCL))  # its holder alone makes it
        os.unlink(guard)
"""


@pytest.fixture(params=["two views", "one view", "view and store", "natively"])
def places(request, mount, store, scratch):
    """For each of the two processes: the lock's directory as that process sees it, and the process's job or None."""
    for top in (store, scratch):
        (top / "inductor/locks").mkdir(parents=True)
    jobs = {"two views": ("one", "two"), "one view": ("one", "one"),
            "view and store": ("one", None), "natively": (None, None)}[request.param]
    beside = scratch if request.param == "natively" else store
    return [((mount.path if job else beside) / "inductor/locks", job) for job in jobs]


@pytest.mark.timeout_s(SECONDS + 20)
@pytest.mark.parametrize("shimmed", [False, True], ids=["plain", "shimmed"])
@pytest.mark.parametrize("kind", ["FileLock", "SoftFileLock"])
@pytest.mark.parametrize("version", params("3.20.0", "3.29.0"))
def test_processes_hold_the_lock_in_turn_and_no_acquisition_fails(places, scratch, version, kind, shimmed):
    processes = []
    for directory, job in places:
        env = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
        if job:
            env["CACHESHIM_JOB"] = job
        if shimmed and job:
            env["LD_PRELOAD"] = mounts.LIBRARY
        processes.append(subprocess.Popen(
            [VENVS / f"filelock-{version}/bin/python", "-c", TAKE_TURNS, kind, directory / "x.lock",
             scratch / "guard", str(COUNT)],
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    try:
        told = [process.communicate(timeout=SECONDS)[1][-2000:] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], told
    finally:
        for process in processes:
            process.kill()
            process.wait()
