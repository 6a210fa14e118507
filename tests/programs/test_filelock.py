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
VERSIONS = ["3.13.4", "3.20.0", "3.24.3", "3.29.0", "4.2.0"]


def params(*short):
    """All versions, of which these are no part of the long tests."""
    return [pytest.param(version, marks=[] if version in short else [pytest.mark.long])
            for version in VERSIONS]


# What they create there is, by inductor's profile, a lock of all jobs where it ends in .lock, and by
# triton's a job's own.
FAMILIES = ["inductor", "triton"]
# What a lock file of all jobs does not do (docs/locks.md), by the beginnings of the tests' names: have the mode
# that its maker wants; be renamed (EXDEV), as a stale soft lock is when it is broken; be linked (EPERM).
KNOWN = {"inductor": ("tests.test_filelock.test_lock_mode_soft",
                      "tests.test_default_mode.test_default_mode_respects_umask",
                      "tests.test_lock_expiry.test_expired_lock_",
                      "tests.test_soft_stale.test_stale_lock_",
                      "tests.test_strict_soft")}
# 20 threads take one lock 20,000 times in one of them, whose own limit is 20 s.
TEST_SECONDS = 150
SECONDS = 480


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
        """The result of each test in a directory."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
        env.update({"CACHESHIM_JOB": "filelock", "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTEST_ADDOPTS": ""})
        subprocess.run(["mkdir", "-p", folder], env=env, check=True)  # in the job's view
        if shimmed:
            env["LD_PRELOAD"] = mounts.LIBRARY
        result = subprocess.run(
            [self.venv / "bin/python", "-m", "pytest", self.venv / "src/tests", "-q",
             "-p", "no:cacheprovider", "-o", "addopts=", f"--basetemp={folder / 't'}",
             f"--junitxml={results}", f"--timeout={TEST_SECONDS}", "--deselect", "tests/test_virtualenv.py"],
            cwd=self.venv / "src", env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)
        found = {}
        for case in ElementTree.parse(results).iter("testcase"):
            ways = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            found[f"{case.get('classname')}.{case.get('name')}"] = ways[0] if ways else "passed"
        return found, result.stdout[-6000:]


@pytest.fixture(scope="module", params=params("3.20.0"))
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
    unknown = {name: ways for name, ways in different.items()
               if not name.startswith(KNOWN.get(family, ("none",)))}
    assert not unknown, f"native and view: {unknown}\n{output}"
