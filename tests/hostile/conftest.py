# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests in which one user attacks others. The users are uids without accounts, in this run's mount
namespace."""

import pathlib
import shutil

import pytest


@pytest.fixture(autouse=True)
def hostile_agent(scratch):
    """Copies agent_hostile.py, which contains the calls of these tests, to a path that the processes can read."""
    module = pathlib.Path(__file__).parent / "agent_hostile.py"
    shutil.copyfile(module, scratch / module.name)
    (scratch / module.name).chmod(0o644)
