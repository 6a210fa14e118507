# SPDX-License-Identifier: Apache-2.0
"""filelock's own tests: in a view, with and without the library, each ends as in a plain folder."""

import os
import pathlib
import subprocess
from xml.etree import ElementTree

import mounts
import pytest

VENV = pathlib.Path(os.environ.get("CACHESHIM_FILELOCK",
                                   str(mounts.REPOSITORY / "build/venv/filelock")))
# What they create there is, by inductor's profile, a lock of all jobs where it ends in .lock, and by
# triton's a job's own.
FAMILIES = ["inductor", "triton"]
# A lock file of all jobs stays open to every user, whatever mode its maker wants for it.
KNOWN = {"inductor": {"tests.test_filelock.test_lock_mode_soft"}}
SECONDS = 280


def outcomes(folder, results, shimmed=False):
    """How each of the tests ended."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
    env.update({"CACHESHIM_JOB": "filelock", "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""})
    subprocess.run(["mkdir", "-p", folder], env=env, check=True)  # in the job's view
    if shimmed:
        env["LD_PRELOAD"] = mounts.LIBRARY
    result = subprocess.run(
        [VENV / "bin/python", "-m", "pytest", VENV / "src/tests", "-q", "-p", "no:cacheprovider",
         "-o", "addopts=", f"--basetemp={folder / 't'}", f"--junitxml={results}", "--deselect",
         "tests/test_virtualenv.py"],
        cwd=VENV / "src", env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):
        ways = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[f"{case.get('classname')}.{case.get('name')}"] = ways[0] if ways else "passed"
    return found, result.stdout[-6000:]


@pytest.fixture(scope="module")
def natively(all_scratch):
    if not (VENV / "src/tests").is_dir():
        pytest.fail(f"no tests of filelock in {VENV}: scripts/test gets them")
    found, output = outcomes(all_scratch / "filelock", all_scratch / "filelock.xml")
    assert list(found.values()).count("passed") > 100, output
    return found


@pytest.mark.timeout_s(SECONDS + 20)
@pytest.mark.parametrize("shimmed", [False, True], ids=["plain", "shimmed"])
@pytest.mark.parametrize("family", FAMILIES)
def test_its_own_tests_end_as_natively(mount, scratch, natively, family, shimmed):
    folder = mount.path / family / "filelock"
    found, output = outcomes(folder, scratch / "results.xml", shimmed)
    different = {name: (natively.get(name), found.get(name))
                 for name in natively.keys() | found.keys()
                 if natively.get(name) != found.get(name)}
    assert different.keys() == KNOWN.get(family, set()), f"native and view: {different}\n{output}"
