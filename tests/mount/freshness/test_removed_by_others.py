# SPDX-License-Identifier: Apache-2.0
"""An open descriptor of a base object keeps working when another process removes or replaces the object."""

import errno
import fcntl
import os
import time

import mounts
import pytest
from jobs import wait_until

LOCK = "triton/KEY/lock"
SHARED = "tensorrt-rtx/app/kernels.cache"
PLAIN = "triton/KEY/k.cubin"
KERNEL = {"k.cubin": b"cubin" * 100, "k.json": b"{}"}


@pytest.fixture(params=["plain", "preloaded"])
def one(mount, request, job_of, shimmed_job_of):
    start = {"plain": job_of, "preloaded": shimmed_job_of}[request.param]
    return start(mount, "one", 20001)


def try_open(job, name, flags=os.O_RDONLY):
    try:
        return job("os.open", job.path(name), flags)
    except OSError as error:
        return error.errno


def replace_raw(path, data):
    aside = path.with_name(path.name + ".aside")
    aside.write_bytes(data)
    aside.chmod(0o666)
    aside.rename(path)


def assert_takes_locks(job, fd, record=fcntl.LOCK_EX):
    job("fcntl.flock", fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    job("fcntl.lockf", fd, record | fcntl.LOCK_NB)
    job("fcntl.flock", fd, fcntl.LOCK_UN)
    job("fcntl.lockf", fd, fcntl.LOCK_UN)


def remove_as(who, mount, job_of, name):
    if who == "job":
        job = job_of(mount, "two", 20002)
        job("os.unlink", job.path(name))
    elif who == "raw":
        mount.base(name).unlink()
    else:
        replace_raw(mount.base(name), b"another's")


@pytest.mark.parametrize("who", ["job", "raw", "replaced"])
@pytest.mark.parametrize("name", [LOCK, SHARED], ids=["lock", "shared"])
def test_a_lock_or_shared_file_stays_usable_by_its_descriptor(mount, one, job_of, name, who):
    one("os.makedirs", one.path(os.path.dirname(name)))
    one.write(name, b"4711")
    fd = one("os.open", one.path(name), os.O_RDWR)
    before = one("os.fstat", fd)
    assert before.st_nlink == 1
    other = job_of(mount, "two", 20002)
    other("os.makedirs", os.path.dirname(other.path(name)), exist_ok=True)
    remove_as(who, mount, job_of, name)
    after = one("os.fstat", fd)
    assert (after.st_nlink, after.st_ino, after.st_size) == (0, before.st_ino, 4)
    assert one("os.pread", fd, 10, 0) == b"4711"
    assert one("os.pwrite", fd, b"0815+", 0) == 5
    assert one("os.pread", fd, 10, 0) == b"0815+"
    one("os.ftruncate", fd, 2)
    assert one("os.fstat", fd).st_size == 2
    one("os.utime", fd, (1, 1))
    assert_takes_locks(one, fd)
    again = one("os.open", f"/proc/{one.pid}/fd/{fd}", os.O_RDONLY)
    assert one("os.fstat", again).st_nlink == 0
    if who == "replaced":
        assert one.read(name) == b"another's"
    else:
        assert not one.exists(name) and try_open(one, name) == errno.ENOENT
    new = one("os.open", one.path(name), os.O_RDWR | os.O_CREAT, 0o644)
    assert one("os.fstat", new).st_nlink == 1
    assert one("os.fstat", new).st_ino == one("os.stat", one.path(name)).st_ino != before.st_ino
    assert mount.base(name).stat().st_ino == one("os.fstat", new).st_ino
    if name == LOCK:  # the lock on the old file does not affect the new one
        one("fcntl.flock", fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert other("try_flock_path", other.path(name))
    if name == LOCK:  # for shared files, the writer that closes last wins
        one("os.close", fd)
        assert mount.base(name).read_bytes() == (b"another's" if who == "replaced" else b"")


def test_a_lock_that_its_job_unlinked_while_another_holds_it_has_no_name_there(mount, two_jobs):
    one, two = two_jobs
    for job in two_jobs:
        job("os.makedirs", job.path("triton/KEY"), exist_ok=True)
    own = one("os.open", one.path(LOCK), os.O_RDWR | os.O_CREAT, 0o644)
    held = two("os.open", two.path(LOCK), os.O_RDWR)
    two("fcntl.flock", held, fcntl.LOCK_EX)
    one("os.unlink", one.path(LOCK))
    assert one("os.fstat", own).st_nlink == 0
    assert two("os.fstat", held).st_nlink == two("os.stat", two.path(LOCK)).st_nlink == 1
    one("os.fchmod", own, 0)  # must not change the file, which the other job has locked
    assert mount.base(LOCK).stat().st_mode & 0o777 == 0o666


def test_a_lock_that_is_made_between_the_lookup_and_the_creation_is_opened(mount, two_jobs):
    """Two views repeatedly create and remove the file at the same time. If the file appears after the kernel's lookup
    has failed, the creation that follows must open it."""
    for job in two_jobs:
        job("os.makedirs", job.path("triton/KEY"), exist_ok=True)
        job.start("make_and_unlink", job.path(LOCK), 1000)
    for job in two_jobs:
        assert job.result(timeout=60) == {}


def test_a_job_that_has_ended_keeps_its_lock(mount, job_of):
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    for job in (one, two):
        job("os.makedirs", job.path("triton/KEY"), exist_ok=True)
    fd = one("os.open", one.path(LOCK), os.O_RDWR | os.O_CREAT, 0o644)
    own = one("os.open", one.path("triton/KEY/own"), os.O_RDWR | os.O_CREAT, 0o644)
    one("os.write", own, b"own")
    one("fcntl.flock", fd, fcntl.LOCK_EX)
    mount.end_job("one")
    assert one("os.fstat", fd).st_nlink == 1
    assert one("os.fstat", own).st_size == 3
    assert not two("try_flock_path", two.path(LOCK))


# ---- plain files of the base

def record_kernel(mount, job_of):
    """Removes the entry, and publishes the same content from a job, so that the daemon records the digests. Sets an
    xattr on the published files."""
    mounts.run("rm", "-r", mount.base(PLAIN).parent)
    maker = job_of(mount, "maker", 20009)
    maker.put_group("KEY", KERNEL)
    for name in KERNEL:
        os.setxattr(mount.base("triton/KEY", name), "user.mark", b"kept")


def take_away(who, mount, job_of):
    victim = mount.base(PLAIN)
    if who == "raw":
        mounts.run("rm", "-r", victim.parent)
    elif who == "replaced":
        replace_raw(victim, b"another's")
    elif who == "gc":
        for file in victim.parent.iterdir():
            os.utime(file, (time.time() - 10 * 86400,) * 2)
        mount.cli("gc")
        assert not victim.exists()
    elif who == "repair":
        victim.with_name("k.json").write_bytes(b"damaged")
        mount.cli("verify", "--repair")
        assert not victim.exists()
    else:
        mounts.run("rm", "-r", victim.parent)
        maker = job_of(mount, "maker2", 20008)
        maker.put_group("KEY", {"k.cubin": b"another's", "k.json": b"{}"})
        wait_until(lambda: victim.exists() and victim.read_bytes() == b"another's",
                   what="publishing")


@pytest.fixture(params=["raw", "replaced", "gc", "repair", "publisher"])
def taken_away(request, mount_store, store, scratch, job_of, shimmed_job_of):
    """taken_away(kind) starts a process that opens PLAIN; another process then removes or replaces that name.

    Returns (mount, process, descriptor, the descriptor's fstat before the removal, whether the name was replaced).
    """
    who = request.param
    old = store / "triton/KEY"
    old.mkdir(parents=True)
    for name, data in KERNEL.items():
        (old / name).write_bytes(data)
        os.setxattr(old / name, "user.mark", b"kept")
    config = scratch / "cacheshim.toml"
    config.write_text('[gc]\nmax_age = "5d"\n')
    mount = mount_store(store, "--config", config)

    def make(kind):
        if who == "repair":
            record_kernel(mount, job_of)
        start = {"plain": job_of, "preloaded": shimmed_job_of}[kind]
        one = start(mount, "one", 20001)
        fd = one("os.open", one.path(PLAIN), os.O_RDONLY)
        before = one("os.fstat", fd)
        take_away(who, mount, job_of)
        return mount, one, fd, before, who in ("replaced", "publisher")

    return make


@pytest.mark.parametrize("kind", ["plain", "preloaded"])
def test_a_base_file_stays_usable_by_its_descriptor(taken_away, kind):
    mount, one, fd, before, is_replaced = taken_away(kind)
    data = KERNEL["k.cubin"]
    wait_until(lambda: one("os.fstat", fd).st_nlink == 0, what="the notice")
    after = one("os.fstat", fd)
    assert (after.st_nlink, after.st_ino, after.st_size) == (0, before.st_ino, len(data))
    assert one("os.pread", fd, 1000, 0) == data
    assert one("os.getxattr", fd, "user.mark") == b"kept"
    assert "user.mark" in one("os.listxattr", fd)
    assert_takes_locks(one, fd, record=fcntl.LOCK_SH)
    again = one("os.open", f"/proc/{one.pid}/fd/{fd}", os.O_RDONLY)
    assert one("os.pread", again, 1000, 0) == data
    if is_replaced:
        wait_until(lambda: one.read(PLAIN) == b"another's", what="the notice")
    else:
        wait_until(lambda: not one.exists(PLAIN), what="the notice")
        assert try_open(one, PLAIN) == errno.ENOENT
    assert one("os.fstat", fd).st_nlink == 0
    assert one("os.pread", fd, 1000, 0) == data


def test_changes_by_a_descriptor_of_a_removed_file_affect_nobody_else(taken_away):
    mount, one, fd, before, is_replaced = taken_away("plain")
    one("os.fchmod", fd, 0o600)
    one("os.utime", fd, (7, 7))
    one("os.setxattr", fd, "user.mark", b"changed")
    after = one("os.fstat", fd)
    assert (after.st_mode & 0o777, after.st_mtime, after.st_nlink) == (0o600, 7, 0)
    assert one("os.getxattr", fd, "user.mark") == b"changed"
    assert one("os.pread", fd, 1000, 0) == KERNEL["k.cubin"]
    assert mount.layer_files("one") == {}
    if is_replaced:
        assert one("os.stat", one.path(PLAIN)).st_mode & 0o777 == mount.base(PLAIN).stat().st_mode & 0o777
        assert mount.base(PLAIN).read_bytes() == b"another's"


def test_the_name_can_be_made_again_at_once(taken_away):
    mount, one, fd, before, is_replaced = taken_away("plain")
    wait_until(lambda: one.exists("triton/KEY") == is_replaced, what="the notice")
    one("os.makedirs", one.path("triton/KEY"), exist_ok=True)
    new = one("os.open", one.path(PLAIN), os.O_RDWR | os.O_CREAT, 0o644)
    assert one("os.fstat", new).st_nlink == 1
    one("os.pwrite", new, b"mine", 0)
    assert one.read(PLAIN)[:4] == b"mine"
    assert one("os.pread", fd, 1000, 0) == KERNEL["k.cubin"]


@pytest.mark.parametrize("kind", ["plain", "preloaded"])
def test_a_directory_stays_one_by_its_descriptor(mount_store, store, job_of, shimmed_job_of, kind):
    (store / "triton/KEY/sub").mkdir(parents=True)
    (store / "triton/KEY/sub/file").write_bytes(b"x")
    mount = mount_store(store)
    start = {"plain": job_of, "preloaded": shimmed_job_of}[kind]
    one = start(mount, "one", 20001)
    fd = one("os.open", one.path("triton/KEY/sub"), os.O_RDONLY | os.O_DIRECTORY)
    before = one("os.fstat", fd)
    assert one("os.listdir", fd) == ["file"]
    mounts.run("rm", "-r", store / "triton/KEY")
    wait_until(lambda: not one.exists("triton/KEY/sub"), what="the notice")
    after = one("os.fstat", fd)
    assert (after.st_ino, after.st_nlink) == (before.st_ino, 0)
    assert one("os.listdir", fd) == []
    one("os.fsync", fd)
    one("os.fchown", fd, before.st_uid, before.st_gid)  # the daemon ignores this call, but must answer it
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        with pytest.raises(FileNotFoundError):
            one("os.open", "file", flags, dir_fd=fd)
    one("os.fchmod", fd, 0o700)
    assert one("os.fstat", fd).st_mode & 0o777 == 0o700
    one("os.makedirs", one.path("triton/KEY/sub"))
    assert one("os.stat", one.path("triton/KEY/sub")).st_nlink > 0
