# SPDX-License-Identifier: Apache-2.0
"""Runs CPython's own tests of file operations: in a view, each has the same result as natively."""

import subprocess
from xml.etree import ElementTree

import pytest

PYTHON = "/usr/bin/python3"
MODULES = ["os", "posix", "shutil", "tempfile", "zipfile", "sqlite3", "mmap", "fcntl", "mailbox",
           "dbm", "dbm_dumb", "dbm_gnu", "pathlib", "glob", "file", "fileio", "filecmp",
           "fileinput", "tarfile"]
MODULE_TIMEOUT_S = 400

# For each module, the tests whose results differ in a view if root runs them, and the reason.
OWN = "all in a view is its user's own: chown is accepted from root and changes nothing"
USER_ATTRIBUTES = "a view keeps attributes of the kind user.* alone, and they try trusted.* first"
KNOWN_AS_ROOT = {
    "os": (OWN, {"test.test_os.ChownFileTests.test_chown_with_root"}),
    "posix": (OWN, {f"test.test_posix.PosixTester.test_{name}chown" for name in ("", "f", "l")}),
    "shutil": (USER_ATTRIBUTES, {f"test.test_shutil.TestCopy.test_{name}"
                                 for name in ("copyxattr", "copyxattr_symlinks", "copy2_xattr")}),
}


def has_module(name):
    """Returns true if CPython's test module exists; Debian does not package all of them."""
    code = f"import importlib.util as i, sys; sys.exit(i.find_spec('{name}') is None)"
    return subprocess.run([PYTHON, "-c", code], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def outcomes(place, module):
    """Runs a test module in a place; returns {test: result} and the end of the output."""
    place.run("mkdir", "-p", "t", "home")
    # The tests' working directory is below --tempdir. Its path is short enough for names of sockets.
    result = place.try_run(PYTHON, "-m", "test", "--junit-xml", place.path / "results.xml",
                           "--tempdir", place.path / "t", f"test_{module}",
                           env={"TMPDIR": place.path / "t", "HOME": place.path / "home"},
                           timeout=MODULE_TIMEOUT_S)
    results = place.run("cat", "results.xml")
    found = {}
    for case in ElementTree.fromstring(results).iter("testcase"):
        ways = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[case.get("name")] = ways[0] if ways else case.get("result", "completed")
    return found, result.stdout[-4000:] + result.stderr[-4000:]


@pytest.mark.long
@pytest.mark.timeout_s(900)
@pytest.mark.parametrize("module", MODULES)
def test_each_ends_as_natively(two_places, uid, module):
    if not has_module(f"test.test_{module}"):
        pytest.skip(f"there is no test.test_{module} here")
    native, view = two_places(uid)
    expected, native_output = outcomes(native, module)
    if not expected:
        pytest.skip(f"test_{module} does not run natively: {native_output.splitlines()[-4:]}")
    found, output = outcomes(view, module)
    different = {name: (expected.get(name), found.get(name))
                 for name in expected.keys() | found.keys()
                 if expected.get(name) != found.get(name)}
    reason, known = KNOWN_AS_ROOT.get(module, ("", set())) if uid == 0 else ("", set())
    assert different.keys() == known, f"native and view: {different}; {reason}\n{output}"
