# SPDX-License-Identifier: Apache-2.0
"""A user cannot block other users by locking a file, even if the user can open this file."""

import errno
import fcntl
import os
import stat
import subprocess

import mounts
import pytest
from jobs import as_user, wait_until

TRUSTED, STRANGER, GROUP = 20001, 20002, 21000
ENGINE = "tensorrt-rtx/a.cache"
LOCK = f"{ENGINE}.lock"


@pytest.fixture
def lock_name(program):
    """Returns the path of a file that the shipped profile tensorrt-rtx names as a lock file."""
    shown = mounts.run(program, "profile", "show", "tensorrt-rtx").stdout
    assert "*.lock" in shown
    return LOCK


def take(job, name):
    fd = job("os.open", job.path(name), os.O_RDWR | os.O_CREAT, 0o666)
    job("fcntl.flock", fd, fcntl.LOCK_EX)
    return fd


def release_lock(job, fd):
    """Unlocks the file, then closes it. After close(2) alone, the daemon may keep the lock on the store's file for a
    short time."""
    job("fcntl.flock", fd, fcntl.LOCK_UN)
    job("os.close", fd)


def assert_free(job, name):
    """Asserts that the job can lock the file immediately; unlocks it."""
    fd = job("os.open", job.path(name), os.O_RDWR)
    job("fcntl.flock", fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    release_lock(job, fd)


def test_no_file_of_the_run_directory_can_be_locked_by_strangers(mount, job_of, store, mount_store):
    job_of(mount, "j", TRUSTED).write("triton/x", b"x")
    stranger = job_of(mount, "s", STRANGER)
    directory = mount.run_directory()
    assert stranger("agent_hostile.try_to_lock", str(directory / "lock")) == errno.EACCES
    stranger("agent_hostile.lock_all_below", str(directory))
    assert mount.unmount().returncode == 0
    mount.mount()
    assert mount.status()["run_dir"] == str(directory)


def test_the_mode_of_an_older_versions_run_directory_lock_is_corrected(mount, job_of):
    directory = mount.run_directory()
    mount.kill_daemon()
    mount.detach()
    os.chmod(directory / "lock", 0o644)
    mount.mount()
    assert stat.S_IMODE(os.stat(directory / "lock").st_mode) == 0o600
    assert mount.run_directory() == directory


@pytest.mark.parametrize("way", ["run", "store"])
def test_strangers_cannot_lock_the_lock_files_of_publishers(mount_allowing, job_of, lock_name, way):
    mount = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    release_lock(trusted, take(trusted, lock_name))
    top = mount.run_directory() / "base" if way == "run" else mount.store
    assert stranger("agent_hostile.try_to_lock", str(top / lock_name)) == errno.EACCES
    assert_free(trusted, lock_name)
    raw = trusted("agent_hostile.try_to_lock", str(mount.store / lock_name))
    assert raw == ["flock", "fcntl"]


def test_strangers_cannot_lock_a_lock_file_older_than_the_policy(mount_allowing, store, job_of, lock_name):
    (store / lock_name).parent.mkdir()
    (store / lock_name).touch(0o666)
    os.chmod(store / lock_name, 0o666)
    mount = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    assert_free(trusted, lock_name)
    assert stranger("agent_hostile.try_to_lock", str(store / lock_name)) == errno.EACCES


def test_publishers_exclude_each_other_beside_the_mount(mount_allowing, job_of,
                                                                   lock_name):
    mount = mount_allowing(f"{{ users = [{TRUSTED}], groups = [{GROUP}] }}")
    trusted = job_of(mount, "one", TRUSTED)
    held = take(trusted, lock_name)
    flock = ["flock", "-n", mount.store / lock_name, "true"]
    assert as_user(TRUSTED, flock).returncode == 1
    member = as_user(STRANGER, flock, extra_groups=[GROUP])
    assert member.returncode == 1 and member.stderr == ""
    root = subprocess.run([str(word) for word in flock], check=False)
    assert root.returncode == 1
    release_lock(trusted, held)
    assert as_user(TRUSTED, flock).returncode == 0
    assert as_user(STRANGER, flock, extra_groups=[GROUP]).returncode == 0
    assert "Permission denied" in as_user(STRANGER, flock).stderr


def test_every_user_can_lock_a_lock_file_in_the_users_view(mount_allowing, job_of, lock_name):
    """A publisher holds the lock on the base's file. In the view of a user who may not publish, this user owns the
    file, its mode is 0666, and the user can lock and write it."""
    mount = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    held = take(trusted, lock_name)
    assert stat.S_IMODE(trusted("os.stat", trusted.path(lock_name)).st_mode) == 0o666
    seen = stranger("os.stat", stranger.path(lock_name))
    assert (seen.st_uid, stat.S_IMODE(seen.st_mode)) == (STRANGER, 0o666)
    for _ in range(2):  # first the base's file, then the file in the stranger's layer
        assert_free(stranger, lock_name)
    stranger.write(lock_name, b"mine")
    assert stranger.read(lock_name) == b"mine"
    trusted("os.close", held)
    assert trusted.read(lock_name) == b""


def test_everybody_shares_lock_files_if_everybody_may_publish(mount, job_of, lock_name):
    one, two = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    fd = take(one, lock_name)
    assert stat.S_IMODE(os.stat(mount.store / lock_name).st_mode) == 0o666
    other = two("os.open", two.path(lock_name), os.O_RDWR)
    with pytest.raises(BlockingIOError):
        two("fcntl.flock", other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    flock = ["flock", "-n", mount.store / lock_name, "true"]
    assert as_user(STRANGER, flock).returncode == 1
    one("os.close", fd)
    wait_until(lambda: as_user(STRANGER, flock).returncode == 0, what="the lock")
