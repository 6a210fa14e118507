# SPDX-License-Identifier: Apache-2.0
"""Fixtures for users who attack others. All of them are uids in a mount namespace that only these tests use."""

import pathlib
import shutil

import pytest


@pytest.fixture(autouse=True)
def hostile_agent(scratch):
    """Copies agent_hostile.py, which contains the calls of these tests, to a path that the processes can read."""
    module = pathlib.Path(__file__).parent / "agent_hostile.py"
    shutil.copyfile(module, scratch / module.name)
    (scratch / module.name).chmod(0o644)
