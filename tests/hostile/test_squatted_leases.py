# SPDX-License-Identifier: Apache-2.0
"""A user who looks up names and builds nothing delays other users for one `flight_timeout`, not for one per name."""

import mounts
import pytest
from jobs import as_user

SQUATTER, VICTIM, OTHER = 20001, 20002, 20003
NAME = "stub.so"  # of class flight; completes its entry if it is the entry's only file
KEYS = [f"triton/KEY{number}" for number in range(4)]


@pytest.fixture
def mount_impatient(mount_store, store, scratch):
    """mount_impatient(allow) mounts the store with a short flight_timeout."""
    def mount(allow=None, name=None):
        config = scratch / "cacheshim.toml"
        config.write_text('flight_timeout = "1s"\n' +
                          ("" if allow is None else f"[publish]\nallow = {allow}\n"))
        return mount_store(store, "--config", config, name=name)
    return mount


def look(process, key):
    return process("create_and_look_up", process.path(key), NAME)


@pytest.fixture
def squat(job_of):
    """For each of KEYS, squat(mount) starts a process of SQUATTER that looks up NAME in the key and builds nothing."""
    def start(mount):
        squatters = [job_of(mount, "squat", SQUATTER) for _ in KEYS]
        for squatter, key in zip(squatters, KEYS):
            assert not look(squatter, key)
        return squatters
    return start


def test_one_timeout_excludes_the_user_as_a_builder_for_others(mount_impatient, job_of, squat):
    mount = mount_impatient()
    squatter, *_ = squat(mount)
    victim = job_of(mount, "victim", VICTIM)
    for key in KEYS:
        assert not look(victim, key)
    assert (mount.stats()["flight_waits"], mount.stats()["flight_timeouts"]) == (1, 1)
    assert mount.status()["excluded_builders"] == [SQUATTER]
    assert not look(squatter, "triton/NEW")
    assert not look(victim, "triton/NEW")
    assert mount.stats()["flight_timeouts"] == 1
    assert f"uid {SQUATTER}" in mount.cli("status").stdout


def test_one_timeout_excludes_a_user_whose_builders_use_another_daemon(mount_impatient, job_of, squat):
    squat(mount_impatient(name="one"))
    mount = mount_impatient(name="two")
    victim = job_of(mount, "victim", VICTIM)
    for key in KEYS:
        assert not look(victim, key)
    assert (mount.stats()["flight_waits"], mount.stats()["flight_timeouts"]) == (1, 1)


def test_other_users_wait_again_after_a_publish(mount_impatient, job_of, squat):
    mount = mount_impatient()
    squatter, *_ = squat(mount)
    victim, other = job_of(mount, "victim", VICTIM), job_of(mount, "other", OTHER)
    assert not look(victim, KEYS[0])
    assert mount.status()["excluded_builders"] == [SQUATTER]
    squatter("triton_put", squatter.path(KEYS[0]), NAME, b"built late")
    assert mount.status()["excluded_builders"] == []
    assert not look(squatter, "triton/NEW")
    assert not look(other, "triton/NEW")
    assert mount.status()["excluded_builders"] == [SQUATTER], "it is forgiven once an hour"
    squatter("triton_put", squatter.path("triton/NEW"), NAME, b"built late")
    assert mount.status()["excluded_builders"] == [SQUATTER]


def test_the_waits_of_the_same_user_exclude_nobody(mount_impatient, job_of, squat):
    mount = mount_impatient()
    squat(mount)
    assert not look(job_of(mount, "another", SQUATTER), KEYS[0])
    assert mount.stats()["flight_timeouts"] == 1
    assert mount.status()["excluded_builders"] == []


@pytest.mark.parametrize("shared_uids", [False, True], ids=["another-job", "same-job"])
def test_a_trusted_process_does_not_wait_for_an_untrusted_one(mount_impatient, job_of, shared_uids):
    mount = mount_impatient(allow=f"{{ users = [{VICTIM}] }}")
    job = "shared" if shared_uids else "squat"
    if shared_uids:
        started = as_user(VICTIM, [mounts.PROGRAM, "job", "start", job, "--shared-uids", "--mount", mount.path])
        assert started.returncode == 0, started.stderr
    victim, squatter = job_of(mount, "shared", VICTIM), job_of(mount, job, SQUATTER)
    for process in (victim, squatter):
        process("os.makedirs", process.path(KEYS[0]), exist_ok=True)
    assert not squatter.exists(f"{KEYS[0]}/{NAME}")
    assert not victim.exists(f"{KEYS[0]}/{NAME}")
    assert mount.stats()["flight_waits"] == 0
