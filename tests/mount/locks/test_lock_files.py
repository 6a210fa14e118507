# SPDX-License-Identifier: Apache-2.0
"""Each lock file that a profile names is one inode in the base, which all jobs and processes outside the mount use."""

import contextlib
import errno
import fcntl
import os
import stat
import subprocess

import pytest
from jobs import wait_until

NAME = "triton/KEY/lock"


@pytest.fixture
def both(two_jobs):
    """Two jobs. The directory of the lock file NAME exists in both views."""
    for job in two_jobs:
        job("os.makedirs", job.path("triton/KEY"), exist_ok=True)
    return two_jobs


def create(job, name=NAME, flags=os.O_RDWR | os.O_CREAT, mode=0o644):
    return job("os.open", job.path(name), flags, mode)


def try_raw(path, operation=fcntl.LOCK_EX):
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, operation | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False


def test_all_jobs_lock_the_same_inode(mount, both):
    one, two = both
    fds = [create(one), create(two)]
    base = mount.base(NAME)
    assert base.stat().st_mode & 0o777 == 0o666
    assert mount.layer_files("one") == mount.layer_files("two") == {}
    one("fcntl.flock", fds[0], fcntl.LOCK_EX)
    assert not two("try_flock_path", two.path(NAME))
    assert not try_raw(base)
    one("os.close", fds[0])
    with open(base, "rb") as raw:
        fcntl.flock(raw, fcntl.LOCK_EX)
        assert not one("try_flock_path", one.path(NAME))
        before = mount.stats()["lock_waits"]
        two.start("fcntl.flock", fds[1], fcntl.LOCK_EX)
        wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")
    two.result(timeout=10)
    assert not try_raw(base)


def test_records_exclude_beside_the_mount_too(mount, both):
    one, two = both
    fd = create(one)
    one("set_record", fd, 0, 10)
    assert not two("try_record", two.path(NAME), 5, 1)
    with open(mount.base(NAME), "r+b") as raw:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(raw, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)
        fcntl.lockf(raw, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 50)
        assert two("find_record", two.path(NAME), 40, 20)[1:] == (50, 1, os.getpid())


def test_a_holders_few_bytes_are_seen_at_once_by_all(mount, both):
    one, two = both
    fd, other = create(one), create(two)
    one("os.write", fd, b"4711")
    assert mount.base(NAME).read_bytes() == two.read(NAME) == b"4711"
    mount.base(NAME).write_bytes(b"raw")
    assert two("os.pread", other, 10, 0) == one.read(NAME) == b"raw"
    assert two("os.fstat", other).st_size == 3
    for call, *arguments in (("os.pwrite", fd, bytes(4097), 0), ("os.ftruncate", fd, 4097),
                             ("os.posix_fallocate", fd, 0, 4097)):
        with pytest.raises(OSError) as refused:
            one(call, *arguments)
        assert refused.value.errno == errno.EFBIG
    one("os.pwrite", fd, bytes(4096), 0)
    one("os.truncate", one.path(NAME), 0)
    assert mount.base(NAME).stat().st_size == 0
    assert mount.layer_files("one") == {}


def test_a_lock_stays_open_to_the_next_user_whatever_its_maker_does(mount, both):
    one, two = both
    fd = create(one, mode=0o600)
    one("os.fchmod", fd, 0o600)
    one("os.chmod", one.path(NAME), 0)
    two("os.close", create(two))
    assert mount.base(NAME).stat().st_mode & 0o777 == 0o666


@contextlib.contextmanager
def delayed(call, pid, scratch):
    """Delays each system call `call` of any thread of the process by 2 s, and records the calls in scratch /
    "calls"."""
    tracer = subprocess.Popen(["strace", "-f", "-p", str(pid), "-o", scratch / "calls", "-e", f"trace={call}",
                               "-e", f"inject={call}:delay_enter=2000000"],
                              stderr=subprocess.PIPE, text=True)
    try:
        assert "attached" in tracer.stderr.readline()
        yield
    finally:
        # Kill strace, because a normal exit could hang: before it detaches, it stops one thread after another. A thread
        # that waits in the kernel for another thread's answer cannot stop, and the other thread may already be stopped.
        # When strace is killed, the kernel releases all threads.
        tracer.kill()
        tracer.wait()
        tracer.stderr.close()


@pytest.mark.parametrize("name", [NAME, "other/x.lock"], ids=["class lock", "unknown cache"])
def test_a_new_lock_file_has_its_mode_from_the_first_instant(mount, job_of, scratch, name):
    """The daemon creates the file, and then calls fchmod(2), which ignores the umask. A process outside the mount may
    open the file before the fchmod, so the file must have mode 0666 from its creation."""
    one = job_of(mount, "one", 20001)
    one("os.makedirs", one.path(os.path.dirname(name)), exist_ok=True)
    call = ("os.open", one.path(name), os.O_RDWR | os.O_CREAT, 0o644)
    if name != NAME:  # the file is the job's own until a process locks it
        call = ("fcntl.flock", one(*call), fcntl.LOCK_EX)
    assert not mount.base(name).exists()
    with delayed("fchmod", mount.daemon_pid(), scratch):
        one.start(*call)
        wait_until(lambda: mount.base(name).exists(), what="the file")
        assert mount.base(name).stat().st_mode & 0o777 == 0o666
        one.result(timeout=30)
    assert "fchmod(" in (scratch / "calls").read_text()


def test_stat_stays_the_same_for_its_holder(mount, both):
    one, two = both
    fd = create(one)
    one("fcntl.flock", fd, fcntl.LOCK_EX)
    before = one("os.fstat", fd)
    assert before.st_nlink == 1
    two("os.close", create(two))
    two("write_file", two.path(NAME), b"x")
    for now in (one("os.fstat", fd), one("os.stat", one.path(NAME))):
        assert (now.st_dev, now.st_ino, now.st_nlink) == (before.st_dev, before.st_ino, 1)


def test_unlink_by_the_only_user_removes_the_file_for_all(mount, both):
    one, two = both
    fd = create(one)
    one("fcntl.flock", fd, fcntl.LOCK_EX)
    one("os.unlink", one.path(NAME))
    assert not mount.base(NAME).exists() and not two.exists(NAME)
    assert one("os.fstat", fd).st_nlink == 0  # filelock checks its lock file in this way
    two("fcntl.flock", create(two), fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("who", ["holder", "waiter", "raw"])
def test_unlink_hides_a_lock_file_until_others_have_released_it(mount, both, who):
    one, two = both
    fd, own = create(two), create(one)
    inode = mount.base(NAME).stat().st_ino
    raw = open(mount.base(NAME), "rb")
    if who == "raw":
        fcntl.flock(raw, fcntl.LOCK_SH)
    elif who == "holder":
        two("fcntl.flock", fd, fcntl.LOCK_EX)
    else:
        one("fcntl.flock", own, fcntl.LOCK_EX)
        before = mount.stats()["lock_waits"]
        two.start("fcntl.flock", fd, fcntl.LOCK_EX)
        wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")
    one("os.unlink", one.path(NAME))
    assert not one.exists(NAME) and one.listdir("triton/KEY") == []
    assert who == "waiter" or two.exists(NAME)  # a waiter is blocked in flock, so it cannot check
    assert mount.base(NAME).stat().st_ino == inode
    if who == "waiter":
        one("os.close", own)
        two.result(timeout=10)
        assert two("os.fstat", fd).st_nlink == 1
    if who == "raw":
        raw.close()
    else:
        two("os.close", fd)
    wait_until(lambda: not mount.base(NAME).exists(), what="the removal")
    raw.close()
    one("os.close", create(one))
    assert mount.base(NAME).exists() and one.exists(NAME)


def test_recreating_a_hidden_lock_returns_the_one_that_others_hold(mount, both):
    one, two = both
    fd = create(two)
    two("fcntl.flock", fd, fcntl.LOCK_EX)
    inode = mount.base(NAME).stat().st_ino
    create(one)
    one("os.unlink", one.path(NAME))
    again = create(one, flags=os.O_RDWR | os.O_CREAT | os.O_EXCL)
    with pytest.raises(BlockingIOError):
        one("fcntl.flock", again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    two("os.close", fd)
    one("fcntl.flock", again, fcntl.LOCK_EX)
    assert mount.base(NAME).stat().st_ino == inode


def test_a_hidden_lock_that_mknod_makes_again_is_not_removed_any_more(mount, both):
    one, two = both
    names = [f"triton/KEY{number}/lock" for number in range(2)]
    for name in names:
        two("os.makedirs", os.path.dirname(two.path(name)))
        two("fcntl.flock", create(two, name), fcntl.LOCK_EX)
        one("os.unlink", one.path(name))
        assert not one.exists(name) and mount.base(name).exists()
    one("os.mknod", one.path(names[0]), 0o644 | stat.S_IFREG)
    assert one("os.stat", one.path(names[0])).st_ino == two("os.stat", two.path(names[0])).st_ino
    two.kill()
    # After the holder's death, the daemon checks both files in the order of their inode numbers, which is usually the
    # order of their creation.
    wait_until(lambda: not mount.base(names[1]).exists(), what="the removal of the other lock")
    assert mount.base(names[0]).exists() and one.exists(names[0])


def test_one_creator_of_two_wins(both):
    one, two = both
    exclusive = os.O_RDWR | os.O_CREAT | os.O_EXCL
    create(one, flags=exclusive)
    with pytest.raises(FileExistsError):
        create(two, flags=exclusive)


def test_a_failed_conversion_blocks_nobody(mount, both):
    one, two = both
    fds = [create(job) for job in both]
    with open(mount.base(NAME), "rb") as raw:
        fcntl.flock(raw, fcntl.LOCK_SH)
        one("fcntl.flock", fds[0], fcntl.LOCK_SH)
        with pytest.raises(BlockingIOError):  # the failed conversion also releases the shared lock
            one("fcntl.flock", fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = mount.stats()["lock_waits"]
        two.start("fcntl.flock", fds[1], fcntl.LOCK_EX)
        wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")
    two.result(timeout=10)


def test_names_that_no_profile_calls_locks_are_a_jobs_own(mount, both):
    one, two = both
    for name in ("triton/KEY/index.lock", "other/lock"):
        one("os.makedirs", os.path.dirname(one.path(name)), exist_ok=True)
        fd = create(one, name)
        one("fcntl.flock", fd, fcntl.LOCK_EX)
        assert not two.exists(name) and not mount.base(name).exists()


def test_a_directory_with_a_lock_is_removed_and_renamed_as_any_other(mount, both):
    one, two = both
    create(one)
    one.write("triton/KEY/file", b"x")
    one("os.rename", one.path("triton/KEY"), one.path("triton/OTHER"))
    assert one.listdir("triton/OTHER") == ["file"]
    create(one, "triton/OTHER/lock")
    one("shutil.rmtree", one.path("triton/OTHER"))
    assert one.listdir("triton") == []


def test_an_entry_is_begun_again_although_its_lock_exists(mount, both):
    one, two = both
    create(one)
    one("fcntl.flock", create(one), fcntl.LOCK_EX)
    two.put("KEY", "k.cubin", b"of two")
    one.put("KEY", "k.cubin", b"of one")
    assert one.listdir("triton/KEY") == two.listdir("triton/KEY") == ["k.cubin", "lock"]
    one.put_group("KEY", {"k.cubin": b"of one"}, kernel="k")
    wait_until(lambda: mount.base("triton/KEY/__grp__k.json").exists(), what="publishing")
    assert mount.base("triton/KEY/k.cubin").read_bytes() == b"of one"
    assert not one("try_flock_path", one.path(NAME))  # the name still leads to the locked file


def test_a_job_that_may_not_publish_has_locks_of_its_own(mount, job_of):
    quiet = job_of(mount, "quiet", 20003, env={"CACHESHIM_PUBLISH": "never"})
    loud = job_of(mount, "loud", 20004)
    for job in (quiet, loud):
        job("os.makedirs", job.path("triton/KEY"), exist_ok=True)
    fd = create(loud)
    loud("fcntl.flock", fd, fcntl.LOCK_EX)
    own = create(quiet)
    quiet("fcntl.flock", own, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert mount.layer_names("quiet") == [NAME]
    assert not quiet("try_flock_path", quiet.path(NAME))


def test_status_reports_the_scope_of_locks(mount):
    assert mount.status()["locks"] == "file system"
    assert "locks" in mount.cli("status").stdout


def test_copy_file_range_does_not_grow_a_lock_file_beyond_its_limit(mount, job_of):
    job = job_of(mount, "one", 20001)
    job("os.makedirs", job.path("inductor/locks"))
    job.write("triton/data", b"x" * 8192)
    source = job("os.open", job.path("triton/data"), os.O_RDONLY)
    target = job("os.open", job.path("inductor/locks/x.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    with pytest.raises(OSError) as refused:
        job("os.copy_file_range", source, target, 8192, 0, 0)
    assert refused.value.errno == errno.EFBIG
    assert mount.base("inductor/locks/x.lock").stat().st_size == 0
    assert job("os.copy_file_range", source, target, 100, 0, 0) == 100
