# SPDX-License-Identifier: Apache-2.0
"""A user whose process holds the inode lock of a directory delays no other user.

getdents(2) holds this lock while it copies names into the caller's buffer. The attacker's buffer is a mapping of a file
on the attacker's own FUSE file system, which never returns the data. The kernel then blocks every invalidation of a
name in that directory."""

import contextlib
import errno
import os
import select
import signal
import time

import mounts
import pytest
from jobs import JobHung, threads, wait_until

HOSTILE, USER, READER = 20001, 20002, 20003
# A deadline, not a measurement: without the defense, the calls hang until the attacker lets go.
SOON_S = 5
NAMES = {"k.cubin": b"x"}

pytestmark = pytest.mark.usefixtures("device")


def listings(job, *names):
    """Makes the kernel cache the directories in the job's view, and returns their paths there."""
    for name in names:
        job("os.makedirs", job.path(name), exist_ok=True)
        job.listdir(name)
    return [job.view(name) for name in names]


def seconds(call):
    start = time.monotonic()
    call()
    return time.monotonic() - start


@pytest.fixture
def attacked(mount, attacker):
    """The mount, while a listing of `triton` hangs in the attacker's view."""
    attacker("agent_hostile.hang_in_listings", listings(attacker, "triton"))
    return mount


def test_publishing_of_others_does_not_wait(attacked, job_of):
    user, reader = job_of(attacked, "user", USER), job_of(attacked, "reader", READER)
    assert not reader.exists("triton/KEY0")  # the kernel caches that the name is absent
    for number in range(5):
        assert seconds(lambda key=f"KEY{number}": user.put_group(key, NAMES)) < SOON_S
        assert attacked.base(f"triton/KEY{number}").exists()
        assert reader.read(f"triton/KEY{number}/k.cubin") == b"x"


def test_many_listings_of_one_user_delay_one_call_of_another(mount, attacker, job_of):
    """The attacker has several views, one per job. A single thread of the daemon invalidates names in all of them."""
    user = job_of(mount, "user", USER)
    before = len(list(threads(mount.daemon_pid())))
    others = [job_of(mount, f"hostile{number}", HOSTILE) for number in range(6)]
    for job in (attacker, *others):
        names = ["triton", "triton/A", "tilelang"]
        job("agent_hostile.hang_in_listings", listings(job, *names))
    for key in ("A", "B"):
        assert seconds(lambda key=key: user.put_group(key, NAMES)) < SOON_S
    assert len(list(threads(mount.daemon_pid()))) <= before + 3
    for job in others:
        job("agent_hostile.end_buffer")


def test_the_end_of_a_job_and_gc_do_not_wait(attacked, job_of):
    user = job_of(attacked, "user", USER, env={"CACHESHIM_PUBLISH": "end"})
    user.put_group("KEY", NAMES)
    assert seconds(lambda: attacked.end_job("user")) < SOON_S
    assert attacked.base("triton/KEY").exists()
    assert seconds(lambda: attacked.cli("gc")) < SOON_S
    assert seconds(lambda: attacked.end_job("hostile", "failure")) < SOON_S


def test_the_attackers_views_show_what_others_have_published(attacked, attacker, job_of):
    """The attacker's other jobs show the entries immediately. The directory that the attacker blocks shows them after
    the attacker has released it."""
    other = job_of(attacked, "other", HOSTILE)
    assert not other.exists("triton/KEY")
    user = job_of(attacked, "user", USER)
    user.put_group("KEY", NAMES)
    user.put_group("LATER", NAMES)
    assert other.read("triton/KEY/k.cubin") == b"x"
    assert other.listdir("triton") == ["KEY", "LATER"]
    attacker("agent_hostile.end_buffer")
    assert attacker.read("triton/KEY/k.cubin") == b"x"
    wait_until(lambda: attacker.listdir("triton") == ["KEY", "LATER"], what="the new listing")


def test_a_changed_file_is_seen_after_the_attack(attacked, attacker, job_of):
    """Some time after the attacker has released the directory, the kernel caches the attacker's views again, and the
    daemon invalidates the names that others change."""
    attacked.base("triton/file").write_bytes(b"one")
    attacker("agent_hostile.end_buffer")
    wait_until(lambda: attacker.exists("triton/file"), what="the file")
    assert attacker.read("triton/file") == b"one"
    attacked.base("triton/new").write_bytes(b"two")
    attacked.base("triton/new").rename(attacked.base("triton/file"))
    wait_until(lambda: attacker.read("triton/file") == b"two", what="the change")


def hold_published(attacker, user):
    """Blocks an invalidation that a publisher needs."""
    attacker("agent_hostile.hang_in_listings", listings(attacker, "triton"))
    user.start("triton_put", user.path("triton/KEY"), "__grp__k.json", b'{"child_paths": {}}')
    with contextlib.suppress(JobHung):
        user.result(SOON_S)


def hold_unlinked(attacker, _user):
    """Blocks an invalidation that the daemon sends for link counts."""
    [directory] = listings(attacker, "triton/A")
    attacker("agent_hostile.remove_one_of_two_names", directory)
    attacker("agent_hostile.hang_in_listings", [directory])
    attacker("agent_hostile.ask_for_attributes", f"{directory}/two")


def test_calls_of_others_end_with_a_killed_daemon(mount, attacker, job_of):
    """A thread that is blocked in the kernel survives SIGKILL, and keeps all descriptors of the daemon open."""
    user, reader = job_of(mount, "user", USER), job_of(mount, "reader", READER)
    hold_published(attacker, user)
    os.kill(mount.daemon_pid(), signal.SIGKILL)
    ended = reader.errno_of("os.lstat", reader.path("triton/none"))
    assert ended in (errno.ENOTCONN, errno.ECONNABORTED)
    assert mount.mount().daemon_pid()
    assert not reader.exists("triton/none")
    attacker("agent_hostile.end_buffer")


@pytest.mark.parametrize("hold", [hold_published, hold_unlinked])
def test_a_signal_ends_the_daemon(mount, attacker, job_of, hold):
    """SIGTERM removes the mount and releases the store, for the next daemon. Calls on files that others have open in
    the mount fail with ENOTCONN. The kernel keeps the daemon's process as a zombie until the attacker's call ends."""
    user, reader = job_of(mount, "user", USER), job_of(mount, "reader", READER)
    reader.write("triton/mine", b"mine")
    opened = reader("os.open", reader.path("triton/mine"), os.O_RDONLY)
    hold(attacker, user)
    process = os.pidfd_open(mount.daemon_pid())
    signal.pidfd_send_signal(process, signal.SIGTERM)
    wait_until(lambda: not mounts.is_mounted(mount.path), SOON_S, "the unmount")
    assert seconds(mount.mount) < 2 * SOON_S
    with pytest.raises(OSError, match="not connected"):
        reader("os.fchmod", opened, 0o600)
    again = job_of(mount, "again", USER)
    again.put_group("NEXT", NAMES)
    assert mount.base("triton/NEXT").exists()
    attacker("agent_hostile.end_buffer")
    with os.fdopen(process) as end:
        assert select.select([end], [], [], SOON_S)[0]
