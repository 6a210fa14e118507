# SPDX-License-Identifier: Apache-2.0
"""With a single client, the daemon's receiver runs on the client's core as SCHED_IDLE, and becomes an ordinary thread
again if it makes no progress there."""

import os
import subprocess
import sys
import time

import pytest
from jobs import threads, wait_until

UID = 20001
POLICY = 41 - 3  # field 41 of proc_pid_stat(5); the fields after the command name begin with field 3

IDLE_AND_BACK = """
import os
for policy in os.SCHED_IDLE, os.SCHED_OTHER:
    os.sched_setscheduler(0, policy, os.sched_param(0))
"""

pytestmark = [
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
    pytest.mark.skipif(subprocess.run([sys.executable, "-c", IDLE_AND_BACK],
                                      stderr=subprocess.DEVNULL).returncode != 0,
                       reason="needs CAP_SYS_NICE"),
]


def guests(pid):
    """Returns the threads of a process that are SCHED_IDLE now, with the cores on which they may run."""
    found = {}
    for task in threads(pid):
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        if int(fields[POLICY]) == os.SCHED_IDLE:
            found[int(task.name)] = os.sched_getaffinity(int(task.name))
    return found


def are_ordinary(pid, uses_io_uring):
    """Returns true if no thread of the process is SCHED_IDLE, and each may run on every core. With io_uring, the daemon
    binds its threads to cores, so the function does not check the cores."""
    tasks = [int(task) for task in os.listdir(f"/proc/{pid}/task")]
    return not guests(pid) and (uses_io_uring or all(
        os.sched_getaffinity(task) == os.sched_getaffinity(0) for task in tasks))


def are_none_for_a_while(pid):
    """Returns true if the process has no SCHED_IDLE thread for 200 ms. If a receiver became an ordinary thread for any
    reason other than a lack of progress, it is SCHED_IDLE again after 64 requests, which take less than 200 ms."""
    for _ in range(20):
        if guests(pid):
            return False
        time.sleep(0.01)
    return True


def test_a_receiver_with_a_single_client_runs_on_its_core(mount_store, store, job_of):
    mount = mount_store(store)
    daemon = mount.daemon_pid()
    job = job_of(mount, "j", UID)
    uses_io_uring = mount.status()["requests"] == "io_uring"
    for core in sorted(os.sched_getaffinity(0)):
        job.start("ask_until", job.path("triton"), job.path("stop"), core)
        wait_until(lambda: {core} in guests(daemon).values(), what="a guest")
        (store / "stop").touch()
        assert job.result()
        wait_until(lambda: are_ordinary(daemon, uses_io_uring), what="the end of the stay")
        (store / "stop").unlink()
        wait_until(lambda: not job.exists("stop"), what="the end of the sign")


def is_let_go(daemon):
    """Occupies the receiver's core with a SCHED_FIFO process; returns true if the receiver becomes an ordinary thread.

    The client can move to another core, but the receiver cannot while it is SCHED_IDLE. If the client moves at the same
    time, the function may return false, so the caller repeats the call until it returns true.
    """
    cores = next(iter(guests(daemon).values()), None)
    if cores is None:
        return False

    def take_core():
        os.sched_setaffinity(0, cores)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=take_core)
    try:
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            if are_none_for_a_while(daemon):
                return True
    finally:
        busy.kill()
        busy.wait()
    return False


def test_a_receiver_without_progress_becomes_ordinary(mount_store, store, job_of):
    mount = mount_store(store)
    daemon = mount.daemon_pid()
    job = job_of(mount, "j", UID)
    job.start("ask_until", job.path("triton"), job.path("stop"))
    wait_until(lambda: is_let_go(daemon), seconds=30, what="the pause")
    (store / "stop").touch()
    assert job.result()
