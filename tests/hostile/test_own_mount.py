# SPDX-License-Identifier: Apache-2.0
"""No thread of the daemon makes a call on the daemon's own mount: a thread killed in such a call could not be
reaped."""

import contextlib
import fcntl
import os
import pathlib
import signal
import subprocess

import mounts
import pytest
from jobs import threads, wait_until

PARAMETER = pathlib.Path("/sys/module/fuse/parameters/enable_uring")
UID = 20001


@pytest.fixture
def mount_with_io_uring(mount_store, store):
    """Enables FUSE over io_uring until the mount has answered its first request; the kernel does not read the parameter
    after that."""
    if not os.access(PARAMETER, os.W_OK):
        pytest.skip("FUSE over io_uring came with Linux 6.14")
    with mounts.setting(PARAMETER, "Y"):
        mount = mount_store(store)
        uses_io_uring = mount.status()["requests"] == "io_uring"
    if not uses_io_uring:
        pytest.skip("no FUSE over io_uring here")
    return mount


@contextlib.contextmanager
def traced(pid, scratch):
    """Traces statfs and umount2 calls of a process and its children during the block. After the block, the yielded list
    contains the calls that the process's own threads made, followed by the number of all traced calls."""
    log = scratch / "calls"
    tracer = subprocess.Popen(["strace", "-f", "-e", "trace=statfs,umount2", "-o", log,
                               "-p", str(pid)], stderr=subprocess.PIPE, text=True)
    assert "attached" in tracer.stderr.readline()
    made = []
    yield made
    own = {thread.name for thread in threads(pid)}
    tracer.terminate()
    try:
        tracer.wait(10)
    except subprocess.TimeoutExpired:  # strace may wait for a stopped child that itself waits for the daemon
        tracer.kill()
        tracer.wait(10)
    calls = log.read_text().splitlines()
    made += [line for line in calls if line.split()[0] in own and "(" in line]
    made.append(f"{len(calls)} in all")


def children(pid):
    found = set()
    for thread in threads(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, (thread / "children").read_text().split()))
    return found


def test_a_daemon_that_is_killed_while_requests_wait_exits(mount_with_io_uring, job_of, scratch):
    """The waiting requests make the daemon probe its own mount repeatedly, which only its child processes may do."""
    mount = mount_with_io_uring
    holder, crowd = (job_of(mount, "j", UID) for _ in range(2))
    holder.write("triton/lock", b"")
    fd = holder("os.open", holder.path("triton/lock"), os.O_RDWR)
    holder("fcntl.flock", fd, fcntl.LOCK_EX)
    pid = mount.daemon_pid()
    for one in (holder, crowd):
        one("os.sched_setaffinity", 0, {min(os.sched_getaffinity(0))})
    fds = crowd("open_often", crowd.path("triton/lock"), 100)
    with traced(pid, scratch) as calls:
        crowd.start("flock_each", fds, fcntl.LOCK_EX)
        wait_until(lambda: mount.stats()["lock_waits"] >= 100, what="a hundred waits")
    assert len(calls) == 1 and not calls[0].startswith("0 "), calls
    mount.kill_daemon()  # fails if the daemon does not exit in time
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), what="the daemon's end")
    crowd.kill()


def test_a_daemon_that_is_killed_while_it_probes_its_mount_exits(mount_with_io_uring, job_of):
    """The test stops the child process that probes the mount, so that the daemon waits for that process."""
    mount = mount_with_io_uring
    holder, waiter = (job_of(mount, "j", UID) for _ in range(2))
    holder.write("triton/lock", b"")
    fd = holder("os.open", holder.path("triton/lock"), os.O_RDWR)
    holder("fcntl.flock", fd, fcntl.LOCK_EX)
    pid = mount.daemon_pid()
    fds = waiter("open_often", waiter.path("triton/lock"), 30)
    waiter.start("flock_each", fds, fcntl.LOCK_EX)
    stopped = set()

    def has_stopped_one():
        for child in children(pid) - stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGSTOP)
                stopped.add(child)
        return stopped

    # If every child exits before it can be stopped, the test kills the daemon without a stopped child.
    with contextlib.suppress(AssertionError):
        wait_until(has_stopped_one, seconds=3, what="a process that asks")
    mount.kill_daemon()
    for child in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGCONT)
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), what="the daemon's end")
    for child in stopped:
        wait_until(lambda child=child: not pathlib.Path(f"/proc/{child}").exists(),
                   what="the end of the process that asked")
    waiter.kill()


def test_the_daemon_has_no_descriptor_of_its_mount(mount, job_of):
    """At exit, the kernel would flush such a descriptor, and the flush would wait for the daemon's answer."""
    job_of(mount, "j", UID).write("triton/x", b"x")
    device = os.lstat(mount.path).st_dev
    for fd in pathlib.Path(f"/proc/{mount.daemon_pid()}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            path = os.readlink(fd)
            if path.startswith("/") and not path.startswith(("/dev/", "/memfd:")):
                assert os.stat(fd).st_dev != device, path


def test_a_daemon_that_is_terminated_with_a_dirty_mapping_exits(mount, job_of):
    """SIGTERM detaches the mount while a file in it has a dirty mapping."""
    job = job_of(mount, "j", UID)
    job.write("triton/x", b"x" * 65536)
    pid = mount.daemon_pid()
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGTERM)
    with os.fdopen(handle):
        wait_until(lambda: not mounts.is_mounted(mount.path), what="the end of the mount")
        job.close()
        wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), what="the daemon's end")
