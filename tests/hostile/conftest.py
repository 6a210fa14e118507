# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests in which one user attacks others. The users are uids without accounts, in this run's mount
namespace."""

import contextlib
import pathlib
import shutil

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
    """A job of a malicious user. Calls of it that hang in his buffer (agent_hostile.Buffer) end with the test."""
    job = job_of(mount, "hostile", HOSTILE)
    yield job
    with contextlib.suppress(Exception):
        job("agent_hostile.end_buffer")
