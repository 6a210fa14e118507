# SPDX-License-Identifier: Apache-2.0
"""FUSE over io_uring: requests use the rings, and no caller waits for another caller's request."""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import signal

import mounts
import pytest
from jobs import JobHung, standing_still, state_of, threads, wait_until, waits_for_an_answer

PARAMETER = pathlib.Path("/sys/module/fuse/parameters/enable_uring")
UID = 20001

pytestmark = pytest.mark.skipif(not os.access(PARAMETER, os.W_OK),
                                reason="FUSE over io_uring came with Linux 6.14")


@pytest.fixture
def rings():
    with mounts.setting(PARAMETER, "Y"):
        yield


@pytest.fixture
def core():
    """A core on which all requesting processes run."""
    return min(os.sched_getaffinity(0))


@contextlib.contextmanager
def elsewhere_than(core):
    everywhere = os.sched_getaffinity(0)
    if everywhere == {core}:
        pytest.skip("needs two cores")
    os.sched_setaffinity(0, everywhere - {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


def on_core(job, core):
    job("os.sched_setaffinity", 0, {core})
    return job


def said_by_doctor(mount):
    checks = json.loads(mount.cli("doctor", "--json").stdout)["checks"]
    return next(check["what"] for check in checks if check["check"] == "requests")


@pytest.mark.parametrize("value, config, way", [
    ("Y", "", "io_uring"), ("N", "", "/dev/fuse"), ("Y", "io_uring = false\n", "/dev/fuse")])
def test_requests_use_the_way_that_kernel_and_configuration_select(mount_store, store, scratch, job_of,
                                                                   value, config, way):
    (scratch / "c.toml").write_text(config)
    with mounts.setting(PARAMETER, value):
        mount = mount_store(store, "--config", scratch / "c.toml")
        assert mount.status()["requests"] == way
        assert f"come over {way}" in mount.cli("status").stdout
        said = said_by_doctor(mount)
    assert said.startswith(f"come over {way}")
    assert (str(PARAMETER) in said) == (value == "N")
    assert ("log says" in said) == bool(config)
    job = job_of(mount, "j", UID)
    job.write("triton/file", b"bytes")
    assert job.read("triton/file") == b"bytes"


def test_a_daemon_without_all_cores_uses_the_device(rings, mount_store, store, core):
    with elsewhere_than(core):
        mount = mount_store(store)
    assert mount.status()["requests"] == "/dev/fuse"


def waiting_threads(pid):
    waiting = 0
    for thread in threads(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has exited
            waiting += waits_for_an_answer(thread)
    return waiting


def test_many_delayed_answers_block_no_other_request(rings, mount_store, store,
                                                                     job_of, core):
    """A hundred simultaneous lock requests that must wait occupy all ring entries of their core until the daemon takes
    them. After that, the daemon must answer another request on that core."""
    mount = mount_store(store)
    assert mount.status()["requests"] == "io_uring"
    holder, crowd, other = (on_core(job_of(mount, "j", UID), core) for _ in range(3))
    holder.write("triton/lock", b"")
    fd = holder("os.open", holder.path("triton/lock"), os.O_RDWR)
    holder("fcntl.flock", fd, fcntl.LOCK_EX)
    fds = crowd("open_often", crowd.path("triton/lock"), 100)
    before = mount.stats()["lock_waits"]
    with standing_still(mount.daemon_pid()):
        crowd.start("flock_each", fds, fcntl.LOCK_EX)
        wait_until(lambda: waiting_threads(crowd.pid) == 100, what="a hundred requests")
    with elsewhere_than(core):  # another core has free ring entries for the check
        wait_until(lambda: mount.stats()["lock_waits"] == before + 100, what="a hundred waits")
    other.write("triton/other", b"works")
    holder("os.close", fd)
    assert crowd.result(timeout=30) == 100


@pytest.fixture
def disk(rings, scratch, overlay):
    """Mounts `overlay` with two lowers: a directory with the file `here`, and the mount of another daemon. A test can
    stop that daemon to simulate a slow disk. Returns that daemon's overlay."""
    (scratch / "disk").mkdir()
    lower = mounts.Overlay(scratch / "disk")
    (overlay.lowers[0] / "here").write_text("x")
    lower.mount()
    overlay.mount(directories=overlay.directories().replace(
        str(overlay.lowers[0]), f"{overlay.lowers[0]}:{lower.path}"))
    yield lower
    overlay.close()
    lower.close()


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def daemon_of(overlay):
    """Returns the pid of the overlay's daemon; ignores child processes with which the daemon probes its mount."""
    found = set(mounts.processes_naming(str(overlay.work)))
    daemon, = (pid for pid in found if parent_of(pid) not in found)
    return daemon


def test_a_request_that_waits_for_a_disk_delays_at_most_one_other(disk, overlay, job_of, core):
    waiting, *others = (on_core(job_of(overlay.path, "j", 0), core) for _ in range(6))
    assert all(other.read("here") == b"x" for other in others)
    with standing_still(daemon_of(disk)):
        waiting.start("os.path.exists", waiting.path("absent"))
        wait_until(lambda: waiting_threads(daemon_of(overlay)) == 1, what="a receiver held up")
        for other in others:
            other.start("read_file", other.path("here"))
        answered = 0
        for other in others:
            with contextlib.suppress(JobHung):
                other.result(timeout=3)
                answered += 1
    assert answered >= len(others) - 1
    assert waiting.result() is False


def is_at_rest(pid):
    """Returns true if all threads of the daemon sleep: the daemon has then taken all available requests."""
    return all(state_of(thread) == "S" for thread in threads(pid))


@pytest.mark.parametrize("count", [1, 20])
def test_a_lock_request_does_not_wait_for_a_disk(disk, overlay, job_of, core, count):
    """The disk blocks one of the two receivers of the core. Lock requests that this receiver has taken must still be
    answered when the lock is released."""
    with elsewhere_than(core):
        holder = job_of(overlay.path, "j", 0)
    fd = holder("os.open", holder.path("here"), os.O_RDONLY)
    holder("fcntl.flock", fd, fcntl.LOCK_EX)
    waiting, crowd = (on_core(job_of(overlay.path, "j", 0), core) for _ in range(2))
    crowd.start("flock_each", crowd("open_often", crowd.path("here"), count), fcntl.LOCK_SH)
    wait_until(lambda: waiting_threads(crowd.pid) == count, what="the requests")
    wait_until(lambda: is_at_rest(daemon_of(overlay)), what="a daemon that has them")
    with standing_still(daemon_of(disk)):
        waiting.start("os.path.exists", waiting.path("absent"))
        wait_until(lambda: waiting_threads(waiting.pid) == 1, what="the question")
        holder("os.close", fd)
        # One of the 20 requests may have found no free ring entry; the daemon has then not received it.
        wait_until(lambda: waiting_threads(crowd.pid) <= count // 20, what="their answers")
    assert crowd.result(timeout=10) == count
    assert waiting.result() is False


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGKILL])
def test_a_signal_that_comes_before_its_request_is_taken_ends_the_wait(disk, overlay, job_of, core,
                                                                       number):
    """The kernel sends no FUSE_INTERRUPT for a request that the daemon has not taken. When the signals arrive, some of
    the lock requests are still in the queue of a receiver that the disk blocks."""
    with elsewhere_than(core):
        holder = job_of(overlay.path, "j", 0)
    holder("fcntl.flock", holder("os.open", holder.path("here"), os.O_RDONLY), fcntl.LOCK_EX)
    waiting, *others = (on_core(job_of(overlay.path, "j", 0), core) for _ in range(6))
    fds = [other("os.open", other.path("here"), os.O_RDONLY) for other in others]
    with standing_still(daemon_of(disk)):
        waiting.start("os.path.exists", waiting.path("absent"))
        wait_until(lambda: waiting_threads(waiting.pid) == 1, what="the question")
        with standing_still(daemon_of(overlay)):  # unanswered requests take ring entries of every receiver
            for other, fd in zip(others, fds):
                other.start("wait_for_flock", fd, fcntl.LOCK_EX)
                wait_until(lambda: waiting_threads(other.pid) == 1, what="a request")
        for other in others:
            os.kill(other.pid, number)
    if number == signal.SIGKILL:
        wait_until(lambda: not any(map(waiting_threads, [other.pid for other in others])),
                   what="their ends")
    else:
        assert [other.result(timeout=10) for other in others] == [errno.EINTR] * len(others)
    assert waiting.result() is False
