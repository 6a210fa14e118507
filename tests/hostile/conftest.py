# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests in which one user attacks others. The users are uids without accounts; their processes run in
the mount namespace of the test run."""

import contextlib
import pathlib
import shutil

import mounts
import pytest

HOSTILE = 20001


@pytest.fixture(autouse=True)
def hostile_agent(scratch):
    """Copies agent_hostile.py, which contains the calls of these tests, to a path that the processes can read."""
    module = pathlib.Path(__file__).parent / "agent_hostile.py"
    shutil.copyfile(module, scratch / module.name)
    (scratch / module.name).chmod(0o644)


@pytest.fixture
def attacker(mount, job_of):
    """A process of a malicious user. Its calls that hang in a buffer (agent_hostile.Buffer) return when the test
    ends."""
    job = job_of(mount, "hostile", HOSTILE)
    yield job
    with contextlib.suppress(Exception):
        job("agent_hostile.end_buffer")


@pytest.fixture
def mount_limiting(mount_store, store, scratch):
    """mount_limiting("max_handles = 10") mounts the store with these limits."""
    def mount(lines, *options):
        config = scratch / "limits.toml"
        config.write_text(f"[limits]\n{lines}\n")
        return mount_store(store, "--config", config, *options)
    return mount


@pytest.fixture
def disk(scratch):
    """disk("store", 64) mounts a new ext4 file system of 64 MiB at scratch/store; 12 % of it is reserved for root."""
    def mount(name, mib):
        mounts.mount_ext4(scratch / f"{name}.img", scratch / name, mib, "-m", "12")
        return scratch / name
    return mount
