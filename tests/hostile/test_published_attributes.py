# SPDX-License-Identifier: Apache-2.0
"""A file that a job publishes keeps only its bytes and times: the base has no attribute that a job has set, and no file
that runs as the daemon's user."""

import errno
import fcntl
import os
import stat
import struct

import pytest

USER = 20001
OVERLAY = "user.overlay.opaque"
OTHERS = ["user.note", "user.fuseoverlayfs.opaque", "user.containers.override_stat", "user.rootlesscontainers"]
LOCK = "triton/KEY/lock"
TEMPORARY = "triton/KEY/tmp.pid_1"
SET_IDS = stat.S_ISUID | stat.S_ISGID
FS_IOC_SETFLAGS = 0x40086602
IMMUTABLE, APPEND_ONLY, NO_DUMP = 0x10, 0x20, 0x40


@pytest.fixture(params=["same-file-system", "another"])
def placed(request, mount_store, store, scratch):
    """A mount whose layers are on the base's file system, where the daemon publishes a file by a link, or on another
    file system."""
    if request.param == "same-file-system":
        return mount_store(store)
    layers = "/dev/shm/" + scratch.name
    os.mkdir(layers, 0o755)
    request.addfinalizer(lambda: os.system(f"rm -rf {layers}"))
    return mount_store(store, "--layers", layers)


def objects_of(mount):
    """Yields the path of each object of the base."""
    for top, directories, files in os.walk(mount.store):
        if top == str(mount.store):
            directories.remove(".cacheshim")
        for name in [*directories, *files]:
            yield os.path.join(top, name)


def assert_plain(mount):
    """Asserts that no object of the base has an attribute, a set-id bit or an owner that a job has chosen."""
    seen = 0
    for path in objects_of(mount):
        seen += 1
        status = os.lstat(path)
        assert (status.st_uid, status.st_gid) == (0, 0), path
        assert not status.st_mode & SET_IDS, (path, oct(status.st_mode))
        assert stat.S_ISLNK(status.st_mode) or not [
            name for name in os.listxattr(path) if not name.startswith("security.")], path
    return seen


def test_attributes_of_published_files(placed, job_of):
    job = job_of(placed, "j", USER)
    job.put("KEY", "k.cubin", b"x")
    for path in (job.path("triton/KEY"), job.path("triton/KEY/k.cubin")):
        assert job.errno_of("os.setxattr", path, OVERLAY, b"y") == errno.EOPNOTSUPP
        for name in OTHERS:
            supported = job.errno_of("os.setxattr", path, name, b"y")
            assert supported in (0, errno.EOPNOTSUPP)  # tmpfs has user attributes since Linux 6.6
        job("os.chmod", path, 0o7755)
    job.put_group("KEY", {})
    assert placed.base("triton/KEY/k.cubin").read_bytes() == b"x"
    assert assert_plain(placed) >= 3


def test_attributes_that_other_jobs_see(placed, job_of):
    """The attributes are gone from the job's own view as well, because it shows the base's file."""
    job, other = job_of(placed, "j", USER), job_of(placed, "k", USER)
    job.put("KEY", "k.cubin", b"x")
    job.errno_of("os.setxattr", job.path("triton/KEY/k.cubin"), "user.note", b"y")
    job.put_group("KEY", {})
    for one in (job, other):
        assert one("os.listxattr", one.path("triton/KEY/k.cubin")) == []


@pytest.mark.timeout_s(240)
def test_attributes_that_are_set_during_publishing(placed, job_of):
    """A process changes the attributes while the daemon publishes. The entry is published without the changes, or not
    at all."""
    job, attacker = job_of(placed, "j", USER), job_of(placed, "j", USER)
    for number in range(150):
        key = f"KEY{number}"
        job.put(key, "k.cubin", b"x")
        attacker.start("agent_hostile.change_attributes", job.path("triton", key, "k.cubin"), 200)
        job.put_group(key, {})
        attacker.result()
    placed.end_job("j")
    assert assert_plain(placed) > 0


def test_file_flags(mount, job_of):
    job = job_of(mount, "j", USER)
    job.put("KEY", "k.cubin", b"x")
    for flag in (IMMUTABLE, APPEND_ONLY, NO_DUMP):
        fd = job("os.open", job.path("triton/KEY/k.cubin"), os.O_RDONLY)
        refused = job.errno_of("fcntl.ioctl", fd, FS_IOC_SETFLAGS, struct.pack("l", flag))
        assert refused in (errno.ENOTTY, errno.EPERM, errno.EOPNOTSUPP)
        job("os.close", fd)


def make_program(job, path):
    """Creates a small file that could be a program, with all attributes that a job can set."""
    job("os.makedirs", os.path.dirname(path), exist_ok=True)
    job("write_file", path, b"#!/bin/sh\nid -u\n")
    job.errno_of("os.setxattr", path, "user.containers.override_stat", b"0:0:04755")
    job("os.chmod", path, 0o6755)


@pytest.mark.parametrize("call", ["os.rename", "os.link", "rename_noreplace"])
def test_a_file_that_becomes_a_lock_file_of_the_base(placed, job_of, call):
    """The lock file is the layer's own inode, and the daemon's user owns it: with a set-id bit, everybody who ran the
    file in the base would become that user."""
    job = job_of(placed, "j", USER)
    make_program(job, job.path(TEMPORARY))
    job.errno_of(call, job.path(TEMPORARY), job.path(LOCK))
    assert_plain(placed)


def test_a_set_id_bit_by_another_name_of_a_lock_file(mount, job_of):
    job = job_of(mount, "j", USER)
    make_program(job, job.path(TEMPORARY))
    job("os.link", job.path(TEMPORARY), job.path(LOCK))
    assert mount.base(LOCK).exists()
    for change in (0o4777, 0o2777, 0o6777):
        job("os.chmod", job.path(TEMPORARY), change)
        assert_plain(mount)


def test_a_set_id_bit_of_a_lock_file_that_leaves_the_base(mount, job_of):
    """A process with a descriptor of the base's file can execute the file even when it has moved to a layer."""
    job = job_of(mount, "j", USER)
    job("os.makedirs", job.path("triton/KEY"))
    job("write_file", job.path(LOCK), b"#!/bin/sh\nid -u\n")
    raw = job("os.open", str(mount.base(LOCK)), os.O_RDONLY)
    job("os.rename", job.path(LOCK), job.path("triton/KEY/tool"))
    job("os.chmod", job.path("triton/KEY/tool"), 0o6755)
    assert not stat.S_IMODE(job("os.fstat", raw).st_mode) & SET_IDS


def test_set_id_bits_of_new_files(mount, job_of):
    """With owner=squash, the daemon's user owns the layer's files, so none of them may get a set-id bit."""
    job = job_of(mount, "j", USER)
    job("os.makedirs", job.path("mine"), exist_ok=True)
    job("write_file", job.path("mine/a"), b"x", mode=0o6755)
    job("os.mknod", job.path("mine/b"), stat.S_IFREG | 0o6755)
    job("write_file", job.path("mine/c"), b"x")
    job("os.chmod", job.path("mine/c"), 0o6755)
    for name in "abc":
        [upper] = mount.uppers("j")
        assert not os.stat(os.path.join(upper, "mine", name)).st_mode & SET_IDS
        assert job("os.stat", job.path("mine", name)).st_mode & 0o777 == 0o755
    job("os.mkdir", job.path("mine/shared"))
    job("os.chmod", job.path("mine/shared"), 0o2775)
    assert job("os.stat", job.path("mine/shared")).st_mode & stat.S_ISGID


def test_owners_modes_and_capabilities_with_owner_keep(mount_store, store, job_of):
    (store / "triton").mkdir()
    (store / "triton").chmod(0o777)  # the view shows the base's real modes
    mount = mount_store(store, "-o", "owner=keep")
    job = job_of(mount, "j", USER)
    make_program(job, job.path("triton/KEY/k.cubin"))
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *entry) for entry in ((1, 7, 2**32 - 1), (2, 7, USER), (4, 7, 2**32 - 1),
                                                  (16, 7, 2**32 - 1), (32, 5, 2**32 - 1)))
    job.errno_of("os.setxattr", job.path("triton/KEY/k.cubin"), "system.posix_acl_access", acl)
    make_program(job, job.path(TEMPORARY))
    job("os.link", job.path(TEMPORARY), job.path(LOCK))
    job.errno_of("os.chmod", job.path(TEMPORARY), 0o6777)
    job.put_group("KEY", {})
    assert mount.base("triton/KEY/k.cubin").exists()
    assert assert_plain(mount) >= 4


def test_locks_of_a_linked_lock_file_still_work(mount, job_of):
    """A program creates its lock file as a link to a temporary file (uv, portalocker). Both names are one file, and
    other processes find it locked."""
    one, two = job_of(mount, "j", USER), job_of(mount, "k", USER)
    for job in (one, two):
        job("os.makedirs", job.path("triton/KEY"), exist_ok=True)
    one("write_file", one.path(TEMPORARY), b"1")
    one("os.link", one.path(TEMPORARY), one.path(LOCK))
    assert one("os.stat", one.path(TEMPORARY)).st_nlink == 2
    held = one("os.open", one.path(LOCK), os.O_RDWR)
    one("fcntl.flock", held, fcntl.LOCK_EX)
    assert two("agent_hostile.try_to_lock", two.path(LOCK)) == ["fcntl"]
