# SPDX-License-Identifier: Apache-2.0
"""Users who try to break others' work. All of them are uids of these tests in a mount namespace of their own."""

import pathlib
import shutil

import pytest


@pytest.fixture(autouse=True)
def hostile_agent(scratch):
    """Copies agent_hostile.py, the calls of these tests, to where their processes find it."""
    module = pathlib.Path(__file__).parent / "agent_hostile.py"
    shutil.copyfile(module, scratch / module.name)
    (scratch / module.name).chmod(0o644)
