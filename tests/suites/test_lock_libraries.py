# SPDX-License-Identifier: Apache-2.0
"""Runs the suites of Python's lock libraries in a view: each test has the same result as in a plain directory."""

import os
import pathlib
import subprocess
from xml.etree import ElementTree

import bounded
import mounts
import pytest
from outcomes import differences

PYTEST = mounts.REPOSITORY / "build/venv/suites/bin/python"
TEST_TIMEOUT_S = 60
SUITE_TIMEOUT_S = 1500
WAY_CHARACTERS = 300
LIBRARIES = ["filelock", "portalocker", "fasteners"]
# Inductor's lock files are files of the base. In an unknown cache, each job has its own lock file, but its locks
# exclude the processes of all jobs.
FAMILIES = ("inductor", "unknown")
# The tests that fail in a family, by prefixes of their names, each with the reason.
MODE = "a lock file of all jobs has mode 0666, whatever chmod says (docs/locks.md)"
KNOWN = {
    "inductor": {
        "tests.test_default_mode.test_default_mode_respects_umask": MODE,
    },
    "unknown": {},
}
# Further tests that fail in some versions only: by the family and a prefix of the checkout's name.
KNOWN_OF_VERSIONS = {
    ("inductor", "filelock-3"): {
        "tests.test_filelock.test_lock_mode_soft": MODE,
        "tests.test_util.test_raise_on_not_writable_file_": MODE,
    },
    ("inductor", "filelock-4"): {
        "tests.test_filelock.test_contender_preserves_holder_mode": MODE,
        "tests.test_util.test_writability_": MODE,
    },
}


def known(top, family):
    found = dict(KNOWN[family])
    for (of_family, beginning), more in KNOWN_OF_VERSIONS.items():
        if of_family == family and top.name.startswith(beginning):
            found.update(more)
    return found


def checkouts():
    """Yields a parameter for the checkout of each version of each library, and a skipped one for a library without a
    checkout."""
    top = pathlib.Path(os.environ.get("CACHESHIM_SUITES", "/nonexistent"))
    for library in LIBRARIES:
        found = sorted(path for path in top.glob(f"{library}*") if path.is_dir())
        yield from (pytest.param(path, id=path.name) for path in found)
        if not found:
            missing = pytest.mark.skip(reason=f"there is no {library} below CACHESHIM_SUITES")
            yield pytest.param(None, id=library, marks=missing)


def way_of(case):
    """Returns the result of a test from its element in the JUnit report."""
    for child in case:
        if child.tag == "skipped":
            return "skipped"
        if child.tag in ("failure", "error"):
            return f"{child.tag}: {child.get('message')}"[:WAY_CHARACTERS]
    return "passed"


def outcomes(top, directory, results, env):
    """Runs a checkout's tests in a new directory; returns {test: result} and the output. The tests import the library
    from the checkout."""
    directory.mkdir()
    tests = next(path for name in ("tests", "portalocker_tests") if (path := top / name).is_dir())
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{top / 'src'}:{top}", "HOME": str(directory),
           "TMPDIR": str(directory), "PYTHONDONTWRITEBYTECODE": "1", **env}
    # Ignore the status: pytest may time out after it has written the report, because it waits for processes that its
    # tests have left behind.
    _, output = bounded.run(
        [PYTEST, "-m", "pytest", tests, "-q", "-p", "no:cacheprovider", "-o", "addopts=",
         f"--timeout={TEST_TIMEOUT_S}",
         f"--basetemp={directory / 't'}", f"--junitxml={results}"],
        SUITE_TIMEOUT_S, cwd=directory, env=env)
    assert results.exists(), f"{top} did not come to its end: {output[-6000:]}"
    found = {f"{case.get('classname')}.{case.get('name')}": way_of(case)
             for case in ElementTree.parse(results).iter("testcase")}
    results.unlink()
    return found, output[-6000:]


@pytest.mark.timeout_s((1 + len(FAMILIES)) * (SUITE_TIMEOUT_S + 30))
@pytest.mark.parametrize("top", list(checkouts()))
def test_each_test_ends_as_natively(mount, native, scratch, top):
    expected, output = outcomes(top, native / top.name, scratch / "native.xml", {})
    assert "passed" in expected.values(), f"{top} does not run natively: {output}"
    assert "KeyboardInterrupt" not in output, f"{top} takes longer than {SUITE_TIMEOUT_S} s natively: {output}"
    different = []
    for family in FAMILIES:
        directory = mount.path / ".jobs/suites" / family / top.name
        subprocess.run(["mkdir", "-p", directory.parent], check=True)
        found, _ = outcomes(top, directory, scratch / "ours.xml", {"CACHESHIM_JOB": "suites"})
        found = dict.fromkeys(expected, "did not run in time") | found
        different += differences(f"{top.name}-{family}", expected, found, known(top, family))
    assert not different, different
