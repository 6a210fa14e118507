# SPDX-License-Identifier: Apache-2.0
"""The record of a layer's owner survives the daemon's death: the daemon writes the record before it sends the owner the
first answer."""

import fcntl
import json

import pytest

OWNER, STRANGER = 20001, 20002


@pytest.fixture
def crash(mount_store, store):
    """crash(mount) kills the daemon and mounts the store again."""

    def again(mount):
        mount.kill_daemon()
        mount.detach()
        return mount_store(store)

    return again


def records(store, job):
    return [json.loads(path.read_text())
            for path in sorted((store / ".cacheshim/layers" / job).glob("*/meta.json"))]


def assert_closed_to_strangers(mount, job_of, job, name):
    stranger = job_of(mount, job, STRANGER)
    with pytest.raises((PermissionError, FileNotFoundError)):
        stranger.read(name)
    owner = job_of(mount, job, OWNER)
    assert owner.read(name) is not None


def test_the_first_write_of_a_job(mount, crash, store, job_of):
    owner = job_of(mount, "j", OWNER)
    owner("os.mkdir", owner.path("triton/KEY"))
    assert [record["uid"] for record in records(store, "j")] == [OWNER]
    owner.write("triton/KEY/x", b"x")
    assert_closed_to_strangers(crash(mount), job_of, "j", "triton/KEY/x")


def test_a_layer_that_root_began(mount, crash, store, job_of):
    root = job_of(mount, "j", 0)
    root.write("triton/x", b"of root")
    assert [record["uid"] for record in records(store, "j")] == [None]
    owner = job_of(mount, "j", OWNER)
    assert owner("os.lstat", owner.view()).st_uid == OWNER  # the daemon's first answer to the owner
    assert [record["uid"] for record in records(store, "j")] == [OWNER]
    assert_closed_to_strangers(crash(mount), job_of, "j", "triton/x")


def test_a_layer_that_root_began_is_claimed_by_job_start(mount, crash, store, job_of, as_user,
                                                         program):
    job_of(mount, "j", 0).write("triton/x", b"of root")
    started = as_user(OWNER, [program, "job", "start", "j", "--mount", mount.path])
    assert started.returncode == 0, started.stderr
    assert [record["uid"] for record in records(store, "j")] == [OWNER]
    assert_closed_to_strangers(crash(mount), job_of, "j", "triton/x")


def test_a_layer_that_was_locked_at_the_daemons_start_is_not_taken_over(mount, mount_store, store, job_of):
    """The new daemon does not take over the layer, and gives it to no other user after it is unlocked."""
    job_of(mount, "j", OWNER).write("triton/x", b"x")
    [layer] = (store / ".cacheshim/layers/j").iterdir()
    mount.kill_daemon()
    mount.detach()
    with open(layer / "owner.lock", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        again = mount_store(store)
    stranger = job_of(again, "j", STRANGER)
    stranger.write("triton/y", b"y")  # before the lookup of triton/x, which the kernel would cache as absent
    assert stranger.listdir("triton") == ["y"] and not stranger.exists("triton/x")
    assert (layer / "upper/triton/x").read_bytes() == b"x"


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"uid": "x"}'],
                         ids=["missing", "empty", "torn", "array", "type"])
def test_a_layer_without_a_record_is_given_to_nobody(mount, mount_store, store, job_of, text):
    """A power failure may leave a layer without a record, or with a damaged one."""
    job_of(mount, "j", OWNER).write("triton/x", b"x")
    [record] = (store / ".cacheshim/layers/j").glob("*/meta.json")
    mount.kill_daemon()
    mount.detach()
    record.unlink()
    if text is not None:
        record.write_text(text)
    again = mount_store(store)
    stranger = job_of(again, "j", STRANGER)
    stranger.write("triton/y", b"y")
    assert stranger.listdir("triton") == ["y"] and not stranger.exists("triton/x")


def test_a_job_that_writes_nothing_has_no_record(mount, store, job_of):
    job = job_of(mount, "j", OWNER)
    assert job.listdir("triton") == []
    assert not (store / ".cacheshim/layers/j").exists()
