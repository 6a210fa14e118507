# SPDX-License-Identifier: Apache-2.0
"""The daemon removes a baton when its creator is dead, and not before."""

import fcntl
import json
import os
import signal

import pytest
from jobs import wait_until

DIRECTORY = "torch-extensions/py311_cu128/op"
BATON = f"{DIRECTORY}/lock"
EXCLUSIVE = os.O_CREAT | os.O_EXCL | os.O_WRONLY


@pytest.fixture
def build(mount, job_of):
    """A builder that holds the baton, and a process that waits for it."""
    builder, waiter = (job_of(mount, "one", 20001) for _ in range(2))
    builder("os.makedirs", builder.path(DIRECTORY))
    builder("os.close", builder("os.open", builder.path(BATON), EXCLUSIVE))
    with pytest.raises(FileExistsError):
        waiter("os.open", waiter.path(BATON), EXCLUSIVE)
    return builder, waiter


def reaped(mount):
    return mount.stats()["batons_reaped"]


def test_a_dead_creators_baton_is_removed_and_waiters_continue(mount, build):
    builder, waiter = build
    assert waiter.exists(BATON)
    builder.kill()
    wait_until(lambda: not waiter.exists(BATON), what="the removal")
    assert reaped(mount) == 1
    waiter("os.close", waiter("os.open", waiter.path(BATON), EXCLUSIVE))
    assert waiter.listdir(DIRECTORY) == ["lock"]
    waiter.kill()
    wait_until(lambda: reaped(mount) == 2, what="the next one's")


def test_a_living_creator_keeps_its_baton_and_may_remove_it(mount, build, job_of):
    builder, waiter = build
    other = job_of(mount, "one", 20001)
    other.kill()  # must not affect the baton, which another process has created
    assert waiter.exists(BATON)
    builder("os.unlink", builder.path(BATON))
    waiter("os.close", waiter("os.open", waiter.path(BATON), EXCLUSIVE))
    builder.kill()
    waiter("os.getpid")
    assert waiter.exists(BATON) and reaped(mount) == 0


def test_a_file_that_has_taken_a_batons_name_is_left_alone(mount, build):
    builder, waiter = build
    builder("os.rename", builder.path(BATON), builder.path(DIRECTORY, "done"))
    waiter.write(BATON, b"no baton: not made exclusively")
    builder.kill()
    with pytest.raises(AssertionError):
        wait_until(lambda: not waiter.exists(BATON), seconds=0.5, what="the removal")
    assert waiter.listdir(DIRECTORY) == ["done", "lock"] and reaped(mount) == 0


def test_a_baton_that_a_process_locks_stays_when_its_maker_dies(mount, job_of):
    """filelock 4 creates its lock file with O_EXCL, and does not remove it."""
    maker, other = (job_of(mount, "one", 20001) for _ in range(2))
    made = []
    for directory in (DIRECTORY, f"{DIRECTORY}2"):
        maker("os.makedirs", maker.path(directory))
        made.append(maker("os.open", maker.path(directory, "lock"), EXCLUSIVE))
    maker("fcntl.flock", made[0], fcntl.LOCK_EX)
    maker.kill()
    wait_until(lambda: not other.exists(f"{DIRECTORY}2/lock"), what="the removal of the other")
    assert other.exists(BATON) and reaped(mount) == 1
    assert other("try_flock", other("os.open", other.path(BATON), os.O_RDWR))


@pytest.mark.parametrize("how", ["cwd", "file", "grandchild"])
def test_a_descendant_that_works_in_the_directory_keeps_the_baton(mount, build, how):
    builder, waiter = build
    child = builder("work_in_a_child", builder.path(DIRECTORY), how)
    builder.kill()
    with pytest.raises(AssertionError):
        wait_until(lambda: not waiter.exists(BATON), seconds=1, what="the removal")
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: not waiter.exists(BATON), what="the removal")
    assert reaped(mount) == 1


def test_a_descendant_elsewhere_does_not_keep_the_baton(mount, build):
    builder, waiter = build
    child = builder("work_in_a_child", "/", "cwd")
    builder.kill()
    wait_until(lambda: not waiter.exists(BATON), what="the removal")
    os.kill(child, signal.SIGKILL)


def test_files_of_a_dead_builder_are_not_published(mount, build):
    builder, waiter = build
    builder.write(f"{DIRECTORY}/op.so", b"half a library")
    builder.kill()
    wait_until(lambda: not waiter.exists(BATON), what="the removal")
    waiter("os.getpid")
    assert not mount.base(DIRECTORY, "op.so").exists()
    assert mount.stats()["entries_published"] == 0


def test_other_names_are_left_alone(mount, job_of):
    builder, waiter = (job_of(mount, "one", 20001) for _ in range(2))
    builder("os.makedirs", builder.path(DIRECTORY))
    for name in ("other", "lock"):
        flags = EXCLUSIVE if name == "other" else os.O_CREAT | os.O_WRONLY
        builder("os.close", builder("os.open", builder.path(DIRECTORY, name), flags))
    builder.kill()
    second = job_of(mount, "one", 20001)
    second("os.close", second("os.open", second.path(DIRECTORY, "op.o"), EXCLUSIVE))
    assert waiter.listdir(DIRECTORY) == ["lock", "op.o", "other"]
    assert reaped(mount) == 0


def test_a_baton_of_a_dead_daemon_is_removed_when_its_creator_dies(mount, build, job_of):
    builder, waiter = build
    mount.kill_daemon()
    mount.mount()
    second = job_of(mount, "one", 20001)
    assert second.exists(BATON) and reaped(mount) == 0  # its creator is alive
    builder.kill()
    wait_until(lambda: not second.exists(BATON), what="the removal")
    assert reaped(mount) == 1
    second("os.close", second("os.open", second.path(BATON), EXCLUSIVE))


@pytest.mark.parametrize("child_works", [False, True], ids=["alone", "with a child"])
def test_a_baton_whose_creator_died_after_the_daemon_is_removed(mount, build, job_of, child_works):
    builder, waiter = build
    # The new daemon recognizes the child's working directory by its path, although the directory's mount is dead.
    child = builder("work_in_a_child", builder.path(DIRECTORY), "cwd") if child_works else None
    mount.kill_daemon()
    builder.kill()
    mount.mount()
    second = job_of(mount, "one", 20001)
    if child_works:
        with pytest.raises(AssertionError):
            wait_until(lambda: not second.exists(BATON), seconds=1, what="the removal")
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: not second.exists(BATON), what="the removal")
    assert reaped(mount) == 1


@pytest.mark.parametrize("change", ["boot", "unknown", "none", "inode"])
def test_a_new_daemon_identifies_a_batons_creator(mount, build, job_of, change):
    builder, _ = build
    mount.kill_daemon()
    file, = mount.store.glob(".cacheshim/layers/one/*/batons.jsonl")
    record = json.loads(file.read_text())
    assert (record["path"], record["pid"]) == (BATON, builder.pid)
    if change == "boot":
        record["boot"] = "another"  # the machine has rebooted since, so the creator is dead
    elif change == "unknown":
        record["pid_namespace"] = "pid:[1]"  # the creator was in another PID namespace
    elif change == "inode":
        record["inode"] += 1  # the record describes another file
        record["boot"] = "another"
    record["newer"] = {"field": 1}
    file.write_text("junk\n" + json.dumps(record) + "\n" if change != "none" else "")
    mount.mount()
    second = job_of(mount, "one", 20001)
    if change == "boot":
        wait_until(lambda: not second.exists(BATON), what="the removal")
        return
    assert second.exists(BATON)
    builder.kill()
    with pytest.raises(AssertionError):
        wait_until(lambda: not second.exists(BATON), seconds=0.5, what="the removal")
