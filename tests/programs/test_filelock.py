# SPDX-License-Identifier: Apache-2.0
"""filelock's own tests: in a view, with and without the library, each ends as in a plain directory."""

import os
import pathlib
import subprocess
from xml.etree import ElementTree

import mounts
import pytest

VENVS = pathlib.Path(os.environ.get("CACHESHIM_FILELOCK", str(mounts.REPOSITORY / "build/venv")))
# 3.20 leaves its lock files; 3.24 and 3.29 unlink them at each release.
VERSIONS = [pytest.param(version, marks=[pytest.mark.long] if is_long else [])
            for version, is_long in (("3.13.4", True), ("3.20.0", False), ("3.24.3", True),
                                     ("3.29.0", False), ("4.2.0", True))]
# What they create there is, by inductor's profile, a lock of all jobs where it ends in .lock, and by
# triton's a job's own.
FAMILIES = ["inductor", "triton"]
# A lock file of all jobs stays open to every user, whatever mode its maker wants for it.
KNOWN = {"inductor": {"tests.test_filelock.test_lock_mode_soft"}}
SECONDS = 280


class Suite:
    """The tests of one version, and how each ends natively."""

    def __init__(self, version, scratch):
        self.venv = VENVS / f"filelock-{version}"
        if not (self.venv / "src/tests").is_dir():
            pytest.fail(f"no tests of filelock in {self.venv}: scripts/test gets them")
        self.natively, output = self.outcomes(scratch / f"filelock-{version}",
                                              scratch / f"filelock-{version}.xml")
        assert list(self.natively.values()).count("passed") > 70, output

    def outcomes(self, folder, results, shimmed=False):
        """How each of the tests ends in a directory."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
        env.update({"CACHESHIM_JOB": "filelock", "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTEST_ADDOPTS": ""})
        subprocess.run(["mkdir", "-p", folder], env=env, check=True)  # in the job's view
        if shimmed:
            env["LD_PRELOAD"] = mounts.LIBRARY
        result = subprocess.run(
            [self.venv / "bin/python", "-m", "pytest", self.venv / "src/tests", "-q",
             "-p", "no:cacheprovider", "-o", "addopts=", f"--basetemp={folder / 't'}",
             f"--junitxml={results}", "--deselect", "tests/test_virtualenv.py"],
            cwd=self.venv / "src", env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)
        found = {}
        for case in ElementTree.parse(results).iter("testcase"):
            ways = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            found[f"{case.get('classname')}.{case.get('name')}"] = ways[0] if ways else "passed"
        return found, result.stdout[-6000:]


@pytest.fixture(scope="module", params=VERSIONS)
def suite(request, all_scratch):
    return Suite(request.param, all_scratch)


@pytest.mark.timeout_s(2 * SECONDS + 20)
@pytest.mark.parametrize("shimmed", [False, True], ids=["plain", "shimmed"])
@pytest.mark.parametrize("family", FAMILIES)
def test_its_own_tests_end_as_natively(suite, mount, scratch, family, shimmed):
    folder = mount.path / family / "filelock"
    found, output = suite.outcomes(folder, scratch / "results.xml", shimmed)
    different = {name: (suite.natively.get(name), found.get(name))
                 for name in suite.natively.keys() | found.keys()
                 if suite.natively.get(name) != found.get(name)}
    assert different.keys() <= KNOWN.get(family, set()), f"native and view: {different}\n{output}"
