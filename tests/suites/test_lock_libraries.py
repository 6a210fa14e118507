# SPDX-License-Identifier: Apache-2.0
"""The suites of Python's lock libraries in a view: each test ends as in a plain directory."""

import os
import pathlib
import subprocess
from xml.etree import ElementTree

import mounts
import pytest
from outcomes import assert_as_natively

PYTEST = mounts.REPOSITORY / "build/venv/suites/bin/python"
SUITE_TIMEOUT_S = 600
LIBRARIES = ["filelock", "portalocker", "fasteners"]
# Tests that end otherwise, each with the reason.
KNOWN = {}


def checkouts(library):
    top = pathlib.Path(os.environ.get("CACHESHIM_SUITES", "/nonexistent"))
    return sorted(path for path in top.glob(f"{library}*") if path.is_dir())


def outcomes(top, directory, results, env):
    """How each test ended. The library is imported from the checkout itself."""
    directory.mkdir()
    tests = next(path for name in ("tests", "portalocker_tests") if (path := top / name).is_dir())
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{top / 'src'}:{top}", "HOME": str(directory),
           "TMPDIR": str(directory), "PYTHONDONTWRITEBYTECODE": "1", **env}
    output = subprocess.run(
        [PYTEST, "-m", "pytest", tests, "-q", "-p", "no:cacheprovider", "-o", "addopts=",
         f"--basetemp={directory / 't'}", f"--junitxml={results}"],
        cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=SUITE_TIMEOUT_S, check=False).stdout
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):
        ways = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[f"{case.get('classname')}.{case.get('name')}"] = ways[0] if ways else "passed"
    return found, output[-6000:]


@pytest.mark.timeout_s(4 * SUITE_TIMEOUT_S)
@pytest.mark.parametrize("library", LIBRARIES)
def test_each_test_ends_as_natively(mount, native, scratch, library):
    found_any = checkouts(library)
    if not found_any:
        pytest.skip(f"there is no {library} below CACHESHIM_SUITES")
    for top in found_any:
        expected, output = outcomes(top, native / top.name, scratch / "native.xml", {})
        assert "passed" in expected.values(), f"{top} does not run natively: {output}"
        for family in ("inductor", "unknown"):  # with lock files of all jobs, and with a job's own
            directory = mount.path / ".jobs/suites" / family / top.name
            subprocess.run(["mkdir", "-p", directory.parent], check=True)
            found, _ = outcomes(top, directory, scratch / "ours.xml", {"CACHESHIM_JOB": "suites"})
            assert_as_natively(expected, found, KNOWN, scratch.parent / f"{top.name}-{family}.json")
