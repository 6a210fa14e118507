# SPDX-License-Identifier: Apache-2.0
"""Each script in scripts/ prints its own help, without installing or building anything."""

import subprocess

import mounts
import pytest

SCRIPTS = sorted(path for path in (mounts.REPOSITORY / "scripts").iterdir() if path.is_file())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_help_is_printed_at_once(script, scratch):
    asked = subprocess.run([script, "--help"], cwd=scratch, capture_output=True, text=True, timeout=10)
    assert asked.returncode == 0, asked.stderr
    assert asked.stderr == ""
    first = asked.stdout.splitlines()[0]
    assert script.name in first or "cacheshim" in first
