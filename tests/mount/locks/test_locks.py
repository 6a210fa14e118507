# SPDX-License-Identifier: Apache-2.0
"""flock(2) and fcntl(2) locks through the mount, between the processes of one job."""

import errno
import fcntl
import os
import signal

import pytest
from jobs import wait_until

BOTH = pytest.mark.parametrize("place", ["base", "layer"])


@pytest.fixture
def lock_mount(mount_store, store):
    (store / "triton/locks").mkdir(parents=True)
    (store / "triton/locks/base").write_bytes(b"data")
    return mount_store(store)


@pytest.fixture
def workers(lock_mount, job_of):
    """workers(3) starts three processes of one job."""
    def start(count):
        return [job_of(lock_mount, "one", 20001) for _ in range(count)]
    return start


def path_of(worker, place):
    path = worker.path("triton/locks", place)
    if place == "layer" and not worker("os.path.exists", path):
        worker("write_file", path, b"data")
    return path


def open_in(worker, path, flags=os.O_RDWR):
    return worker("os.open", path, flags)


def start_waiting(mount, worker, fd, operation=fcntl.LOCK_EX, call="fcntl.flock"):
    """Starts a lock request, and returns when the daemon has queued it."""
    before = mount.stats()["lock_waits"]
    worker.start(call, fd, operation)
    wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")


@BOTH
def test_waiters_get_the_lock_in_the_order_they_came(lock_mount, workers, place):
    holder, *waiters = workers(6)
    path = path_of(holder, place)
    fd = open_in(holder, path)
    holder("fcntl.flock", fd, fcntl.LOCK_EX)
    fds = [open_in(worker, path) for worker in waiters]
    for worker, own in zip(waiters, fds):
        start_waiting(lock_mount, worker, own)
    holder("fcntl.flock", fd, fcntl.LOCK_UN)
    for number, worker in enumerate(waiters):
        worker.result(timeout=10)  # this worker now has the lock
        assert not holder("try_flock_path", path)
        for later in waiters[number + 1:]:
            with pytest.raises(AssertionError, match="did not come back"):
                later.result(timeout=0.02)
        worker("os.close", fds[number])
    assert holder("try_flock_path", path)


@BOTH
def test_shared_locks_coexist_and_a_waiting_writer_is_not_overtaken(lock_mount, workers, place):
    one, two, writer, late = workers(4)
    path = path_of(one, place)
    fds = [open_in(worker, path) for worker in (one, two, writer, late)]
    one("fcntl.flock", fds[0], fcntl.LOCK_SH)
    two("fcntl.flock", fds[1], fcntl.LOCK_SH)
    start_waiting(lock_mount, writer, fds[2])
    start_waiting(lock_mount, late, fds[3], fcntl.LOCK_SH)
    one("os.close", fds[0])
    two("os.close", fds[1])
    writer.result(timeout=10)
    with pytest.raises(AssertionError, match="did not come back"):
        late.result(timeout=0.05)
    writer("os.close", fds[2])
    late.result(timeout=10)


def test_a_process_with_a_shared_lock_gets_another_past_a_waiting_writer(lock_mount, workers):
    reader, writer = workers(2)
    path = path_of(reader, "base")
    first, second = open_in(reader, path), open_in(reader, path)
    reader("fcntl.flock", first, fcntl.LOCK_SH)
    start_waiting(lock_mount, writer, open_in(writer, path))
    # If this request waited behind the writer's, the reader would wait for its own first lock.
    reader("fcntl.flock", second, fcntl.LOCK_SH)
    reader("os.close", first)
    reader("os.close", second)
    writer.result(timeout=10)


@BOTH
def test_a_signal_ends_a_wait_with_eintr(lock_mount, workers, place):
    holder, waiter, next_one = workers(3)
    path = path_of(holder, place)
    fd = open_in(holder, path)
    holder("fcntl.flock", fd, fcntl.LOCK_EX)
    start_waiting(lock_mount, waiter, open_in(waiter, path), fcntl.LOCK_EX, "wait_for_flock")
    start_waiting(lock_mount, next_one, open_in(next_one, path))
    os.kill(waiter.pid, signal.SIGUSR1)
    assert waiter.result(timeout=10) == errno.EINTR
    holder("os.close", fd)
    next_one.result(timeout=10)


@BOTH
@pytest.mark.parametrize("victim", ["holder", "waiter"])
def test_a_killed_process_leaves_nothing(lock_mount, workers, place, victim):
    holder, waiter, next_one = workers(3)
    path = path_of(holder, place)
    fd = open_in(holder, path)
    holder("fcntl.flock", fd, fcntl.LOCK_EX)
    start_waiting(lock_mount, waiter, open_in(waiter, path))
    start_waiting(lock_mount, next_one, open_in(next_one, path))
    if victim == "holder":
        holder.kill()
        waiter.result(timeout=10)
        waiter.kill()
    else:
        waiter.kill()
        holder("os.close", fd)
    next_one.result(timeout=10)
    next_one.kill()
    free, = workers(1)
    wait_until(lambda: free("try_flock_path", path), what="the lock")


@BOTH
@pytest.mark.parametrize("way", ["dup", "fork", "SCM_RIGHTS"])
def test_a_passed_descriptor_keeps_the_lock(workers, place, way):
    worker, = workers(1)
    assert worker("share_flock", path_of(worker, place), way) == [False, True]


@BOTH
@pytest.mark.parametrize("use_records", [False, True], ids=["flock", "records"])
def test_a_lock_is_free_when_close_has_returned(workers, place, use_records):
    worker, = workers(1)
    path = path_of(worker, place)
    refused = worker("lock_again_after_close", path, 3000, use_records)
    # close(2) returns before the daemon receives FUSE_RELEASE, so a flock request waits up to 3 ms for it. If the
    # machine stalls, FUSE_RELEASE may come later, and the request is refused.
    late = [] if use_records else [seconds for seconds in refused if seconds >= 0.003]
    assert refused == late and len(late) <= 3


@BOTH
def test_locks_are_converted_as_flock_says(lock_mount, workers, place):
    one, two = workers(2)
    path = path_of(one, place)
    first, second = open_in(one, path), open_in(two, path)
    one("fcntl.flock", first, fcntl.LOCK_SH)
    one("fcntl.flock", first, fcntl.LOCK_EX)
    assert not two("try_flock_path", path, fcntl.LOCK_SH)
    one("fcntl.flock", first, fcntl.LOCK_SH)
    two("fcntl.flock", second, fcntl.LOCK_SH)
    with pytest.raises(BlockingIOError):
        one("fcntl.flock", first, fcntl.LOCK_EX | fcntl.LOCK_NB)
    two("fcntl.flock", second, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the failed conversion has released the lock of `one`
    start_waiting(lock_mount, one, first, fcntl.LOCK_SH)
    two("fcntl.flock", second, fcntl.LOCK_SH)
    one.result(timeout=10)


@BOTH
def test_waiting_uses_no_thread_of_the_daemon(lock_mount, workers, place):
    holder, crowd = workers(2)
    path = path_of(holder, place)
    fd = open_in(holder, path)
    holder("fcntl.flock", fd, fcntl.LOCK_EX)
    crowd.start("flock_in_threads", path, 100)
    wait_until(lambda: lock_mount.stats()["lock_waits"] >= 100, what="a hundred waits")
    holder.write("triton/locks/other", b"works")
    assert holder.read("triton/locks/other") == b"works"
    holder("os.close", fd)
    assert crowd.result(timeout=20) == 1


@BOTH
def test_record_locks_are_of_ranges_and_processes(lock_mount, workers, place):
    one, two = workers(2)
    path = path_of(one, place)
    fd = open_in(one, path)
    one("set_record", fd, 10, 20)
    assert two("try_record", path, 0, 10) and two("try_record", path, 30, 0)
    assert not two("try_record", path, 29, 1)
    assert not two("try_record", path, 0, 0, fcntl.F_OFD_SETLK)
    assert two("find_record", path) == (fcntl.F_WRLCK, 10, 20, one.pid)
    assert two("try_flock_path", path)  # record locks and flock locks do not exclude each other
    own = open_in(two, path)
    before = lock_mount.stats()["lock_waits"]
    two.start("set_record", own, 0, 100)
    wait_until(lambda: lock_mount.stats()["lock_waits"] > before, what="the wait")
    one("set_record", fd, 0, 0, fcntl.F_SETLK, fcntl.F_UNLCK)
    two.result(timeout=10)
    assert not one("try_record", path, 50, 1)


@BOTH
def test_a_request_for_other_bytes_does_not_wait(lock_mount, workers, place):
    holder, first, second = workers(3)
    path = path_of(holder, place)
    fd = open_in(holder, path)
    holder("set_record", fd, 0, 10)
    holder("set_record", fd, 20, 10)
    fds = [open_in(worker, path) for worker in (first, second)]
    for worker, own, start in ((first, fds[0], 0), (second, fds[1], 20)):
        before = lock_mount.stats()["lock_waits"]
        worker.start("set_record", own, start, 10)
        wait_until(lambda: lock_mount.stats()["lock_waits"] > before, what="the wait")
    holder("set_record", fd, 20, 10, fcntl.F_SETLK, fcntl.F_UNLCK)
    second.result(timeout=10)
    with pytest.raises(AssertionError, match="did not come back"):
        first.result(timeout=0.05)


@BOTH
def test_a_close_releases_record_locks_although_a_child_has_the_file(workers, place):
    one, two = workers(2)
    path = path_of(one, place)
    child = one("lock_records_and_leave_them_to_a_child", path)
    try:
        assert two("try_record", path)
    finally:
        one("os.kill", child, signal.SIGKILL)


@BOTH
def test_any_close_of_the_file_by_a_process_releases_its_record_locks(workers, place):
    one, two = workers(2)
    path = path_of(one, place)
    one("set_record", open_in(one, path), 0, 10)  # from now on, the close of a new descriptor causes a FUSE_FLUSH
    one("set_record", open_in(one, path), 0, 10)
    assert not two("try_record", path)
    one("read_file", path)
    assert two("try_record", path)


@BOTH
def test_record_locks_of_a_description_stay_with_it(workers, place):
    one, two = workers(2)
    path = path_of(one, place)
    fd = open_in(one, path)
    one("set_record", fd, 0, 0, fcntl.F_OFD_SETLK)
    one("read_file", path)  # closing another descriptor releases nothing
    assert not two("try_record", path)
    one("os.close", fd)
    wait_until(lambda: two("try_record", path), what="the lock")


@BOTH
def test_a_killed_owner_of_record_locks_leaves_nothing(lock_mount, workers, place):
    holder, waiter = workers(2)
    path = path_of(holder, place)
    holder("set_record", open_in(holder, path))
    own = open_in(waiter, path)
    before = lock_mount.stats()["lock_waits"]
    waiter.start("set_record", own)
    wait_until(lambda: lock_mount.stats()["lock_waits"] > before, what="the wait")
    holder.kill()
    waiter.result(timeout=10)


def test_a_lock_belongs_to_the_job_and_survives_a_copy_up(lock_mount, job_of):
    one, same, other = (job_of(lock_mount, job, uid)
                        for job, uid in (("one", 20001), ("one", 20001), ("two", 20002)))
    path = one.path("triton/locks/base")
    fd = open_in(one, path, os.O_RDONLY)
    one("fcntl.flock", fd, fcntl.LOCK_EX)
    one.write("triton/locks/base", b"of the layer")
    assert not same("try_flock_path", path)
    assert other("try_flock_path", path)
    with open(lock_mount.base("triton/locks/base"), "rb") as raw:
        fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
