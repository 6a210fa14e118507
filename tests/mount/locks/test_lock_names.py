# SPDX-License-Identifier: Apache-2.0
"""Renames and links to and from the names of lock files behave as on a local file system. uv, portalocker and filelock
create and break their locks with these calls."""

import errno
import fcntl
import os

import mounts
import pytest
from agent_unlinking import unlink_repeatedly
from jobs import wait_until

LOCK = "triton/KEY/lock"
TEMPORARY = "triton/KEY/tmp.pid_1"
ASIDE = "triton/KEY/broken"
LOCKS = "inductor/locks"


def errno_of(job, call, *arguments):
    try:
        job(call, *arguments)
    except OSError as error:
        return error.errno
    return 0


def make(job, name, data=b"", flags=os.O_RDWR | os.O_CREAT | os.O_EXCL):
    fd = job("os.open", job.path(name), flags, 0o600)
    job("os.write", fd, data)
    return fd


def lock(job, fd):
    job("fcntl.flock", fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def can_lock(job, name):
    return job("try_flock_path", job.path(name))


def can_lock_raw(mount, name):
    with open(mount.base(name), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.fixture(params=["beside", "elsewhere"])
def mount(request, mount_store, store, scratch):
    """A mount with layers on the store's file system, or on another one."""
    options = []
    if request.param == "elsewhere":
        layers = scratch / "layers"
        layers.mkdir()
        mounts.run("mount", "-t", "tmpfs", "-o", "mode=755", "layers", layers, check=True)
        request.addfinalizer(lambda: mounts.run("umount", "-l", layers))
        options = ["--layers", layers]
    mounted = mount_store(store, *options)
    mounted.has_layers_beside = request.param == "beside"
    return mounted


@pytest.fixture(params=["plain", "preloaded"])
def both(mount, request, job_of, shimmed_job_of):
    jobs = ({"plain": job_of, "preloaded": shimmed_job_of}[request.param](mount, "one", 20001),
            job_of(mount, "two", 20002))
    for job in jobs:
        job("os.makedirs", job.path("triton/KEY"))
        job("os.makedirs", job.path(LOCKS))
    return jobs


# uv renames a temporary file to .lock, and locks it through the descriptor that it opened before the rename.
def test_a_lock_file_is_made_by_a_rename(mount, both):
    one, two = both
    fd = make(one, TEMPORARY, b"4711")
    one("rename_noreplace", one.path(TEMPORARY), one.path(LOCK))
    assert not one.exists(TEMPORARY)
    assert two.read(LOCK) == one.read(LOCK) == mount.base(LOCK).read_bytes() == b"4711"
    assert mount.layer_files("one") == {}
    lock(one, fd)
    assert not can_lock(two, LOCK) and not can_lock_raw(mount, LOCK) and not can_lock(one, LOCK)
    by_fd, by_path = one("os.fstat", fd), one("os.stat", one.path(LOCK))
    assert (by_fd.st_nlink, by_fd.st_size) == (1, 4)
    assert os.path.samestat(by_fd, by_path) or not mount.has_layers_beside
    assert by_path.st_mode & 0o777 == mount.base(LOCK).stat().st_mode & 0o777 == 0o666
    one("os.close", fd)
    assert can_lock(two, LOCK)
    wait_until(lambda: can_lock_raw(mount, LOCK), what="the end of the lock")


def test_writes_by_the_first_descriptor_are_read_by_others(mount, both):
    one, two = both
    fd = make(one, TEMPORARY, b"old")
    one("os.rename", one.path(TEMPORARY), one.path(LOCK))
    assert two.read(LOCK) == b"old"
    one("os.pwrite", fd, b"newer", 0)
    assert two.read(LOCK) == mount.base(LOCK).read_bytes() == b"newer"
    two.write(LOCK, b"by two")
    assert one("os.pread", fd, 10, 0) == b"by two"


def test_noreplace_onto_a_lock_file_that_is_held_gives_eexist(mount, both):
    one, two = both
    lock(two, make(two, LOCK))
    make(one, TEMPORARY, b"mine")
    assert errno_of(one, "rename_noreplace", one.path(TEMPORARY), one.path(LOCK)) == errno.EEXIST
    assert one.read(TEMPORARY) == b"mine"
    assert not can_lock(one, LOCK)


def test_a_rename_onto_a_lock_file_that_is_held_replaces_it(mount, both):
    one, two = both
    held = make(two, LOCK, b"old")
    lock(two, held)
    make(one, TEMPORARY, b"new")
    one("os.rename", one.path(TEMPORARY), one.path(LOCK))
    assert two.read(LOCK) == one.read(LOCK) == b"new"
    after = two("os.fstat", held)
    assert (after.st_nlink, after.st_size) == (0, 3)
    assert can_lock(one, LOCK) and can_lock(two, LOCK)


def test_a_lock_that_is_held_stays_when_its_file_becomes_a_lock_file(mount, both):
    one, two = both
    fd = make(one, TEMPORARY)
    lock(one, fd)
    one("os.rename", one.path(TEMPORARY), one.path(LOCK))
    assert not can_lock(two, LOCK) and not can_lock_raw(mount, LOCK) and not can_lock(one, LOCK)
    one("fcntl.flock", fd, fcntl.LOCK_UN)
    assert can_lock(two, LOCK)
    lock(one, fd)
    one("os.close", fd)
    wait_until(lambda: can_lock_raw(mount, LOCK), what="the end of the lock")


def test_a_name_that_one_job_has_unlinked_leads_to_the_file_that_the_others_have(mount, both):
    one, two = both
    lock(two, make(two, LOCK))
    one("os.unlink", one.path(LOCK))
    assert not one.exists(LOCK)
    make(one, TEMPORARY)
    assert errno_of(one, "rename_noreplace", one.path(TEMPORARY), one.path(LOCK)) == errno.EEXIST
    assert one.exists(LOCK) and not can_lock(one, LOCK)


# filelock breaks a lock whose holder is dead: it renames the file, and creates it again.
def test_a_lock_file_is_renamed_away(mount, both):
    one, two = both
    held = make(two, LOCK, b"stale")
    lock(two, held)
    error = errno_of(one, "os.rename", one.path(LOCK), one.path(ASIDE))
    if not mount.has_layers_beside:
        assert error == errno.EXDEV
        return
    assert error == 0
    assert one.read(ASIDE) == b"stale" and not mount.base(ASIDE).exists()
    assert not one.exists(LOCK) and not two.exists(LOCK) and not two.exists(ASIDE)
    lock(one, make(one, LOCK, b"fresh"))
    assert two.read(LOCK) == b"fresh" and not can_lock(two, LOCK)
    assert two("os.pread", held, 10, 0) == b"stale"
    assert not can_lock(one, ASIDE)  # the renamed file, which job two has locked
    one("os.unlink", one.path(ASIDE))


@pytest.mark.parametrize("call", ["os.rename", "rename_noreplace", "os.replace"])
def test_a_lock_file_is_renamed_to_the_name_of_another(mount, both, call):
    one, two = both
    fd = make(one, f"{LOCKS}/a", b"a")
    lock(one, fd)
    one(call, one.path(LOCKS, "a"), one.path(LOCKS, "b"))
    assert two.listdir(LOCKS) == ["b"] and two.read(f"{LOCKS}/b") == b"a"
    assert not can_lock(two, f"{LOCKS}/b") and not can_lock_raw(mount, f"{LOCKS}/b")
    make(two, f"{LOCKS}/c")
    error = errno_of(one, call, one.path(LOCKS, "b"), one.path(LOCKS, "c"))
    assert error == (errno.EEXIST if call == "rename_noreplace" else 0)


# filelock's strict soft lock creates its own file, and links it to the lock's name.
def test_a_lock_file_is_made_by_a_link(mount, both):
    one, two = both
    fd = make(one, TEMPORARY, b"claim")
    error = errno_of(one, "os.link", one.path(TEMPORARY), one.path(LOCK))
    if not mount.has_layers_beside:
        assert error == errno.EPERM and not one.exists(LOCK)
        return
    assert error == 0
    assert two.read(LOCK) == b"claim"
    assert one("os.stat", one.path(LOCK)).st_nlink == one("os.fstat", fd).st_nlink == 2
    assert os.path.samestat(one("os.stat", one.path(LOCK)), one("os.stat", one.path(TEMPORARY)))
    lock(one, fd)
    assert not can_lock(two, LOCK) and not can_lock(one, TEMPORARY) and not can_lock(one, LOCK)
    make(two, TEMPORARY)
    assert errno_of(two, "os.link", two.path(TEMPORARY), two.path(LOCK)) == errno.EEXIST
    one("os.unlink", one.path(TEMPORARY))
    assert one("os.stat", one.path(LOCK)).st_nlink == one("os.fstat", fd).st_nlink == 1
    one("os.close", fd)
    assert can_lock(two, LOCK)


def test_a_lock_file_gets_a_second_name(mount, both):
    one, two = both
    fd = make(one, f"{LOCKS}/a", b"a")
    one("os.link", one.path(LOCKS, "a"), one.path(LOCKS, "b"))
    lock(one, fd)
    assert two.listdir(LOCKS) == ["a", "b"] and not can_lock(two, f"{LOCKS}/b")
    error = errno_of(one, "os.link", one.path(LOCKS, "a"), one.path(ASIDE))
    assert error == (0 if mount.has_layers_beside else errno.EPERM)
    if error == 0:
        assert one.read(ASIDE) == b"a" and not can_lock(one, ASIDE)


@pytest.mark.parametrize("call", ["link", "rename"])
def test_giving_a_name_that_is_removed_at_once_succeeds(mount_store, store, scratch, job_of, call):
    mount = mount_store(store)
    job = job_of(mount, "one", 20001)
    job("os.makedirs", job.path("triton/KEY"))
    job.start("name_repeatedly", call, job.path(TEMPORARY), job.path(LOCK), str(scratch / "stop"))
    removed = unlink_repeatedly(mount.base(LOCK), seconds=30, times=100)
    (scratch / "stop").touch()
    assert job.result(timeout=60) == {}
    assert removed == 100


def test_a_file_that_is_too_large_is_no_lock_file(mount, both):
    one, _ = both
    make(one, TEMPORARY, b"x" * 4097)
    for call in ("os.rename", "os.link"):
        assert errno_of(one, call, one.path(TEMPORARY), one.path(LOCK)) == errno.EFBIG
    assert not mount.base(LOCK).exists() and one.exists(TEMPORARY)


def test_other_objects_are_not_renamed_onto_a_lock_file(mount, both):
    one, two = both
    make(two, LOCK)
    one("os.symlink", "nowhere", one.path(ASIDE))
    assert errno_of(one, "os.rename", one.path(ASIDE), one.path(LOCK)) == errno.EXDEV
    one("os.mkdir", one.path("triton/KEY/directory"))
    assert errno_of(one, "os.rename", one.path("triton/KEY/directory"), one.path(LOCK)) == errno.ENOTDIR


def test_a_job_that_may_not_publish_renames_in_its_own_layer(mount_store, store, scratch, job_of):
    config = scratch / "config.toml"
    config.write_text("[publish]\nallow = {}\n")
    mount = mount_store(store, "--config", config)
    job = job_of(mount, "one", 20001)
    job("os.makedirs", job.path("triton/KEY"))
    make(job, TEMPORARY, b"mine")
    job("os.rename", job.path(TEMPORARY), job.path(LOCK))
    assert job.read(LOCK) == b"mine" and not mount.base(LOCK).exists()
