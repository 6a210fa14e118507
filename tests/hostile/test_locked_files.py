# SPDX-License-Identifier: Apache-2.0
"""A user whose process holds the inode lock of a base file delays nobody who opens the file.

FIEMAP holds this lock while it copies the extents into the caller's buffer. The attacker's buffer is a mapping of a file
on the attacker's own FUSE file system, which never returns the data. Every user who may read a file may call FIEMAP."""

import errno
import os
import select
import signal
import time

import mounts
import pytest
from jobs import wait_until

USER, READER = 20002, 20003
FILE = "triton/KEY/k.cubin"
LONG_AGO = 1000
# A deadline, not a measurement: without the defense, the open hangs until the attacker lets go.
SOON_S = 5

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(params=["relatime", "noatime"])
def mount(mount_store, store, request):
    """With noatime, the daemon records a use by utimensat(2), which waits for the file's inode lock."""
    mounts.run("mount", "--bind", "-o", request.param, store, store, check=True)
    return mount_store(store)


@pytest.fixture
def locked(mount, attacker, job_of):
    """The mount, while the attacker holds the inode lock of a published file whose last use is long ago."""
    job_of(mount, "user", USER).put_group("KEY", {"k.cubin": b"x" * 8192})
    os.sync()  # allocates the file's blocks
    os.utime(mount.base(FILE), (LONG_AGO, LONG_AGO))
    try:
        attacker("agent_hostile.hang_in_extents", str(mount.base(FILE)))
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("this file system has no FIEMAP")
    return mount


def test_an_open_does_not_wait_for_a_locked_file(locked, job_of):
    reader = job_of(locked, "reader", READER)
    start = time.monotonic()
    assert reader.read(FILE) == b"x" * 8192
    assert time.monotonic() - start < SOON_S


@pytest.mark.parametrize("mount", ["noatime"], indirect=True)
def test_a_signal_ends_the_daemon(locked, attacker, job_of):
    """SIGTERM removes the mount and releases the store, although a thread of the daemon is blocked. Calls on files that
    others have open in the mount fail with ENOTCONN. The kernel keeps the daemon's process until the attacker's call
    ends."""
    reader = job_of(locked, "reader", READER)
    reader.read(FILE)
    reader.write("triton/mine", b"mine")
    opened = reader("os.open", reader.path("triton/mine"), os.O_RDONLY)
    process = os.pidfd_open(locked.daemon_pid())
    signal.pidfd_send_signal(process, signal.SIGTERM)
    wait_until(lambda: not mounts.is_mounted(locked.path), SOON_S, "the unmount")
    start = time.monotonic()
    locked.mount()
    assert time.monotonic() - start < 2 * SOON_S
    with pytest.raises(OSError, match="not connected"):
        reader("os.fchmod", opened, 0o600)
    assert not select.select([process], [], [], 0)[0]
    attacker("agent_hostile.end_buffer")
    with os.fdopen(process) as end:
        assert select.select([end], [], [], SOON_S)[0]
