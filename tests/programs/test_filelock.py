# SPDX-License-Identifier: Apache-2.0
"""Runs filelock's own tests: in a view, with and without the library, each has the same result as in a plain
directory."""

import os
import pathlib
import subprocess
import warnings
from xml.etree import ElementTree

import mounts
import pytest
from filelock_known import is_known

VENVS = pathlib.Path(os.environ.get("CACHESHIM_FILELOCK", str(mounts.REPOSITORY / "build/venv")))
# 3.20 keeps its lock files; 3.24 and 3.29 unlink them at each release.
VERSIONS = ["3.13.4", "3.20.0", "3.24.3", "3.29.0", "4.2.0"]


def params(*short):
    """Returns all versions as parameters; those not in `short` are marked as long tests."""
    return [pytest.param(version, marks=[] if version in short else [pytest.mark.long])
            for version in VERSIONS]


# The directory of the lock files, and whether the library is preloaded. With inductor's profile, all jobs share a file
# whose name ends in .lock; with triton's, each job has its own file. "other" has no profile: a lock on the job's own
# file is taken on the store's file of that name.
WAYS = [("inductor", False), ("inductor", True), ("triton", True), ("other", False)]
TEST_SECONDS = 150  # the limit for one test; the longest takes a lock 20,000 times in 20 threads
SECONDS = 1200  # the limit for all tests of a version; the tests of 4.2.0 use 140 s of CPU time, and sleep for 140 s
RERUNS = 2
RERUN_SECONDS = 400  # the limit for a repetition; a single test with eight processes may take 300 s


class Suite:
    """The tests of one version, and their native results."""

    def __init__(self, version, scratch):
        self.version = version
        self.venv = VENVS / f"filelock-{version}"
        if not (self.venv / "src/tests").is_dir():
            pytest.fail(f"no tests of filelock in {self.venv}: scripts/test gets them")
        self.natively, output = self.outcomes(scratch / f"filelock-{version}",
                                              scratch / f"filelock-{version}.xml")
        assert list(self.natively.values()).count("passed") > 70, output

    def outcomes(self, directory, results, shimmed=False, tests=("tests",), seconds=SECONDS):
        """Runs tests with `directory` as their temporary directory; returns {test: result} and the output."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
        env.update({"CACHESHIM_JOB": "f", "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTEST_ADDOPTS": "", "PYTHONPATH": str(pathlib.Path(__file__).parent / "plugins")})
        subprocess.run(["mkdir", "-p", directory], env=env, check=True)  # the directory is in the job's view
        if shimmed:
            env["LD_PRELOAD"] = mounts.LIBRARY
        # Not --capture=fd, which calls os.fstat: some tests make that call fail.
        result = subprocess.run(
            [self.venv / "bin/python", "-m", "pytest", *tests, "-q", "--capture=sys",
             "-p", "no:cacheprovider", "-p", "no_own_limits", "-o", "addopts=",
             f"--basetemp={directory}", f"--junitxml={results}", f"--timeout={TEST_SECONDS}",
             "--deselect", "tests/test_virtualenv.py"],
            cwd=self.venv / "src", env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False)
        assert results.exists(), f"pytest ended with {result.returncode}: {result.stdout[-6000:]}"
        found = {}
        for case in ElementTree.parse(results).iter("testcase"):
            ways = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            found[f"{case.get('classname')}.{case.get('name')}"] = ways[0] if ways else "passed"
        return found, result.stdout[-6000:]

    def differing(self, found):
        """Returns {test: (native result, result in `found`)} for the tests whose results differ."""
        return {name: (self.natively.get(name), found.get(name))
                for name in self.natively.keys() | found.keys()
                if self.natively.get(name) != found.get(name)}

    def argument(self, name):
        """Converts a test's name from the form in the results, "tests.test_x.test_y[z]", to pytest's argument,
        tests/test_x.py::test_y[z]."""
        base, bracket, parameters = name.partition("[")
        parts = base.split(".")
        count = next(count for count in range(1, len(parts) + 1)
                     if (self.venv / "src" / "/".join(parts[:count])).with_suffix(".py").is_file())
        return "::".join(["/".join(parts[:count]) + ".py", *parts[count:]]) + bracket + parameters


@pytest.fixture(scope="module")
def suite(request, all_scratch):
    return Suite(request.param, all_scratch)


def runs():
    """Yields the parameters (version, family, shimmed). Version 3.20.0 is tested in all four WAYS; the two with
    inductor are long tests. To save time, each other version is tested in only two of the WAYS, in long tests."""
    for number, (version, mark) in enumerate(zip(VERSIONS, params("3.20.0"))):
        is_short = not mark.marks
        for family, shimmed in WAYS if is_short else WAYS[number % 2::2]:
            is_long = not is_short or family == "inductor"
            yield pytest.param(version, family, shimmed, marks=[pytest.mark.long] if is_long else [],
                               id=f"{version}-{family}-{'shimmed' if shimmed else 'plain'}")


def without_parameters(names):
    return {name.partition("[")[0] for name in names}


@pytest.mark.timeout_s(2 * SECONDS + RERUNS * RERUN_SECONDS + 20)
@pytest.mark.parametrize("suite, family, shimmed", list(runs()), indirect=["suite"])
def test_filelocks_own_tests_have_native_results(suite, mount_store, store, scratch, family, shimmed):
    """Tests that wait for fractions of a second may fail on a busy machine. So the tests whose results differ from the
    native ones are run again RERUNS times, and must then have the native result each time."""
    directory = mount_store(store, name="m").path / family / "f"  # a short path, because one test binds a socket
    found, output = suite.outcomes(directory, scratch / "results.xml", shimmed)
    different = suite.differing(found)
    if family == "inductor":
        known = {name for name, ended in suite.natively.items() if ended == "passed" and is_known(name, suite.version)}
        gone = without_parameters(known) - without_parameters(different)
        assert not gone, f"end as natively, and are to be taken out of filelock_known.py: {gone}"
        different = {name: ways for name, ways in different.items() if name not in known}
    for run in range(RERUNS if different else 0):
        assert all(None not in ways for ways in different.values()), f"not run in both: {different}"
        again, output = suite.outcomes(directory, scratch / f"again{run}.xml", shimmed,
                                       [suite.argument(name) for name in different], RERUN_SECONDS)
        assert again.keys() == different.keys(), output
        still = {name: ways for name, ways in suite.differing(again).items() if name in again}
        assert not still, f"native and view: {still}\n{output}"
    if different:
        warnings.warn(f"ended as natively when run again: {different}")
