# SPDX-License-Identifier: Apache-2.0
"""The daemon's receiver shares the core of a single client, and makes progress in any case."""

import os
import subprocess
import sys
import time

import pytest
from jobs import threads, wait_until

UID = 20001
POLICY = 41 - 3  # proc(5), /proc/PID/stat; counted behind the command

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
    """The threads of a process that are SCHED_IDLE now, with the cores that they may run on."""
    found = {}
    for task in threads(pid):
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        if int(fields[POLICY]) == os.SCHED_IDLE:
            found[int(task.name)] = os.sched_getaffinity(int(task.name))
    return found


def are_ordinary(pid, uses_io_uring):
    """Whether all threads of a process are, and may run where we may, if none has a core of its own."""
    tasks = [int(task) for task in os.listdir(f"/proc/{pid}/task")]
    return not guests(pid) and (uses_io_uring or all(
        os.sched_getaffinity(task) == os.sched_getaffinity(0) for task in tasks))


def are_none_for_a_while(pid):
    """A stay that ends for another reason is followed by the next one after 64 requests."""
    for _ in range(20):
        if guests(pid):
            return False
        time.sleep(0.01)
    return True


def test_a_client_that_is_alone_has_the_receiver_on_its_core(mount_store, store, job_of):
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
    """Whether the guest becomes an ordinary thread when somebody takes its core for himself.

    The client may go elsewhere, the guest only if it is let go; not seen where it has just moved.
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
