# SPDX-License-Identifier: Apache-2.0
"""Record locks of fcntl(2): which locks a process loses by closing a descriptor, and deadlocks."""

import errno
import fcntl
import os

import pytest
from jobs import wait_until

NAMES = {"base": "triton/locks/base", "layer": "triton/locks/layer", "class lock": "triton/KEY/lock",
         "unknown cache": "other/x.lock"}
PLACES = pytest.mark.parametrize("place", list(NAMES))


@pytest.fixture
def lock_mount(mount_store, store):
    (store / "triton/locks").mkdir(parents=True)
    (store / "triton/locks/base").write_bytes(b"data")
    return mount_store(store)


@pytest.fixture
def workers(lock_mount, job_of):
    def start(count, job="one"):
        return [job_of(lock_mount, job, 20001) for _ in range(count)]
    return start


def path_of(worker, place):
    path = worker.path(NAMES[place])
    worker("os.makedirs", os.path.dirname(path), exist_ok=True)
    worker("os.close", worker("os.open", path, os.O_RDWR | os.O_CREAT, 0o644))
    return path


def start_waiting(mount, worker, *arguments):
    before = mount.stats()["lock_waits"]
    worker.start("set_record", *arguments)
    wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")


@PLACES
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
def test_closing_a_descriptor_from_before_the_first_lock_releases_it(workers, place, flags):
    one, two = workers(2)
    path = path_of(one, place)
    earlier = one("os.open", path, flags)
    one("set_record", one("os.open", path, os.O_RDWR))
    assert not two("try_record", path)
    one("os.close", earlier)
    assert two("try_record", path)


@PLACES
def test_a_waiter_gets_the_lock_that_a_close_releases(lock_mount, workers, place):
    one, two = workers(2)
    path = path_of(one, place)
    earlier = one("os.open", path, os.O_RDONLY)
    one("set_record", one("os.open", path, os.O_RDWR))
    start_waiting(lock_mount, two, two("os.open", path, os.O_RDWR))
    one("os.close", earlier)
    two.result(timeout=10)


def test_a_lock_through_the_open_that_copies_a_file_up_ends_with_any_close(lock_mount, workers):
    """The kernel does not report close(2) for descriptors from an open that has copied the file up."""
    one, two = workers(2)
    path = one.path(NAMES["base"])
    fd = one("os.open", path, os.O_RDWR)
    other = one("os.dup", fd)
    one("set_record", fd)
    assert not two("try_record", path)
    start_waiting(lock_mount, two, two("os.open", path, os.O_RDWR))
    one("os.close", other)
    two.result(timeout=10)


def test_f_getlk_by_the_holder_keeps_its_lock(lock_mount, workers):
    """SQLite calls F_GETLK while it holds a lock. The kernel's request for F_GETLK contains no process, and after an
    open that has copied the file up, the daemon checks in /proc whether the holder still has its descriptors."""
    one, two = workers(2)
    path = one.path(NAMES["base"])
    fd = one("os.open", path, os.O_RDWR)
    one("set_record", fd)
    one("set_record", fd, 0, 0, fcntl.F_GETLK)
    assert not two("try_record", path)


@pytest.mark.parametrize("place", ["base", "layer"])
def test_closing_another_file_of_that_inode_number_releases_nothing(lock_mount, workers, place):
    """The process closes a descriptor of the base's file outside the mount. In the view, the file has the same inode
    number."""
    one, two = workers(2)
    path = path_of(one, place)
    silent = one("os.open", path, os.O_RDONLY)
    beside = one("os.open", str(lock_mount.base("triton/locks/base")), os.O_RDONLY)
    one("set_record", one("os.open", path, os.O_RDWR))
    one("os.close", beside)
    assert not two("try_record", path)
    one("os.close", silent)
    assert two("try_record", path)


@PLACES
def test_locks_of_a_description_survive_the_close_of_another_descriptor(workers, place):
    one, two = workers(2)
    path = path_of(one, place)
    earlier = one("os.open", path, os.O_RDONLY)
    one("set_record", one("os.open", path, os.O_RDWR), 0, 0, fcntl.F_OFD_SETLK)
    one("os.close", earlier)
    assert not two("try_record", path)


@PLACES
@pytest.mark.parametrize("files", [1, 2])
def test_a_request_that_would_wait_for_itself_gets_edeadlk(lock_mount, workers, place, files):
    one, two = workers(2)
    path = path_of(one, place)
    other = one.path("triton/locks/other") if files == 2 else path
    one("os.close", one("os.open", other, os.O_RDWR | os.O_CREAT, 0o644))
    fds = [[worker("os.open", name, os.O_RDWR) for name in (path, other)] for worker in (one, two)]
    one("set_record", fds[0][0], 0, 1)
    two("set_record", fds[1][1], 1, 1)
    start_waiting(lock_mount, one, fds[0][1], 1, 1)
    with pytest.raises(OSError) as refused:
        two("set_record", fds[1][0], 0, 1)
    assert refused.value.errno == errno.EDEADLK
    two("set_record", fds[1][1], 1, 1, fcntl.F_SETLK, fcntl.F_UNLCK)
    one.result(timeout=10)


def test_two_jobs_that_wait_for_each_other_get_edeadlk(lock_mount, job_of):
    """The files are lock files, so both jobs lock the same files of the base."""
    one, two = (job_of(lock_mount, name, uid) for name, uid in (("one", 20001), ("two", 20002)))
    fds = []
    for job in (one, two):
        job("os.makedirs", job.path("other"), exist_ok=True)
        fds.append([job("os.open", job.path(name), os.O_RDWR | os.O_CREAT, 0o644)
                    for name in ("other/a.lock", "other/b.lock")])
    one("set_record", fds[0][0])
    two("set_record", fds[1][1])
    start_waiting(lock_mount, one, fds[0][1])
    with pytest.raises(OSError) as refused:
        two("set_record", fds[1][0])
    assert refused.value.errno == errno.EDEADLK
    two.kill()
    one.result(timeout=10)


def test_locks_of_descriptions_wait_in_a_cycle_as_on_a_local_file_system(lock_mount, workers):
    one, two = workers(2)
    path = path_of(one, "layer")
    fds = [worker("os.open", path, os.O_RDWR) for worker in (one, two)]
    for number, worker in enumerate((one, two)):
        worker("set_record", fds[number], number, 1, fcntl.F_OFD_SETLK)
    start_waiting(lock_mount, one, fds[0], 1, 1, fcntl.F_OFD_SETLKW)
    start_waiting(lock_mount, two, fds[1], 0, 1, fcntl.F_OFD_SETLKW)
    with pytest.raises(AssertionError, match="did not come back"):
        two.result(timeout=0.1)
    one.kill()
    two.result(timeout=10)


# A parent closes one descriptor of a file that it has created, while a child keeps all of them open.
CLOSES_ONE_OF_TWO = """
import fcntl, os, sys
first = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.write(first, b"0123456789")
second = os.dup(first)
fcntl.lockf(first, fcntl.LOCK_EX, 5, 0)
fcntl.lockf(second, fcntl.LOCK_EX, 5, 5)
told, tell = os.pipe()
tried, has_tried = os.pipe()
child = os.fork()
if child == 0:
    own = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(own, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)
        os._exit(1)
    except BlockingIOError:
        os.write(has_tried, b"x")
    os.read(told, 1)
    fcntl.lockf(own, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
    os._exit(0)
os.read(tried, 1)
os.close(first)
os.write(tell, b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

# A child that holds a lock is killed. Its parent requests the lock before it has reaped the child.
WAITS_FOR_A_ZOMBIE = """
import fcntl, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
told, tell = os.pipe()
child = os.fork()
if child == 0:
    fcntl.lockf(fd, fcntl.LOCK_EX)
    os.write(tell, b"x")
    signal.pause()
os.read(told, 1)
os.kill(child, signal.SIGKILL)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
signal.alarm(20)
fcntl.lockf(fd, fcntl.LOCK_EX)
"""


@pytest.mark.parametrize("script", [CLOSES_ONE_OF_TWO, WAITS_FOR_A_ZOMBIE],
                         ids=["one of two descriptors closed", "holder is a zombie"])
@pytest.mark.parametrize("place", ["view", "overlay", "natively"])
def test_locks_by_inherited_descriptors_of_a_new_file_end_as_natively(
        request, scratch, as_user, script, place):
    if place == "view":
        directory = request.getfixturevalue("mount").path / "triton"
    else:
        directory = scratch / "native"
        directory.mkdir()
        if place == "overlay":
            directory = request.getfixturevalue("overlay").mount().path
        directory.chmod(0o777)
    result = as_user(20001, ["/usr/bin/python3", "-c", script, directory / "file"], job="one")
    assert result.returncode == 0, result.stderr
