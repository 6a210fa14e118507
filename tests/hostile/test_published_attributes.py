# SPDX-License-Identifier: Apache-2.0
"""A file that a job publishes keeps only its bytes and times: the base has no attribute that a job can set, and no file
that runs as the service account."""

import errno
import os
import stat
import struct

import pytest

USER = 20001
OVERLAY = "user.overlay.opaque"
OTHERS = ["user.note", "user.fuseoverlayfs.opaque", "user.containers.override_stat", "user.rootlesscontainers"]
SET_IDS = stat.S_ISUID | stat.S_ISGID
FS_IOC_SETFLAGS = 0x40086602
IMMUTABLE, APPEND_ONLY, NO_DUMP = 0x10, 0x20, 0x40


@pytest.fixture(params=["same-file-system", "another"])
def placed(request, mount_store, store, scratch):
    """A mount whose layers are on the base's file system, so that files are published by a link, or on another."""
    if request.param == "same-file-system":
        return mount_store(store)
    layers = "/dev/shm/" + scratch.name
    os.mkdir(layers, 0o755)
    request.addfinalizer(lambda: os.system(f"rm -rf {layers}"))
    return mount_store(store, "--layers", layers)


def error_of(job, call, *arguments):
    try:
        job(call, *arguments)
    except OSError as error:
        return error.errno
    return 0


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
        assert error_of(job, "os.setxattr", path, OVERLAY, b"y") == errno.EOPNOTSUPP
        for name in OTHERS:
            supported = error_of(job, "os.setxattr", path, name, b"y")
            assert supported in (0, errno.EOPNOTSUPP)  # tmpfs has user attributes since Linux 6.6
        job("os.chmod", path, 0o7755)
    job.put_group("KEY", {})
    assert placed.base("triton/KEY/k.cubin").read_bytes() == b"x"
    assert assert_plain(placed) >= 3


def test_attributes_that_other_jobs_see(placed, job_of):
    """The attributes are gone from the job's own view as well, because it shows the base's file."""
    job, other = job_of(placed, "j", USER), job_of(placed, "k", USER)
    job.put("KEY", "k.cubin", b"x")
    error_of(job, "os.setxattr", job.path("triton/KEY/k.cubin"), "user.note", b"y")
    job.put_group("KEY", {})
    for one in (job, other):
        assert one("os.listxattr", one.path("triton/KEY/k.cubin")) == []


@pytest.mark.timeout_s(240)
def test_attributes_that_are_set_during_publishing(placed, job_of):
    """A process changes the attributes while the daemon publishes. An entry is published without them, or not at all."""
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
        refused = error_of(job, "fcntl.ioctl", fd, FS_IOC_SETFLAGS, struct.pack("l", flag))
        assert refused in (errno.ENOTTY, errno.EPERM, errno.EOPNOTSUPP)
        job("os.close", fd)
