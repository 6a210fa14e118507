# SPDX-License-Identifier: Apache-2.0
"""Runs pjdfstest on a plain overlay: each check has the same result as on the underlying file system."""

import re

import bounded
import pytest
from outcomes import assert_as_natively

FILE_TIMEOUT_S = 300
# The checks that fail only on the overlay, each with the reason.
KNOWN = {}


def checks(suite, directory):
    """Runs pjdfstest in `directory`; returns {"file:number": result} for each check of each test file."""
    found = {}
    for file in sorted((suite / "tests").rglob("*.t")):
        name = str(file.relative_to(suite / "tests"))
        status, output = bounded.run(["sh", file], FILE_TIMEOUT_S, cwd=directory)
        if status is bounded.TIMED_OUT:
            found[name] = "timed out"
            continue
        for outcome, number in re.findall(r"^(ok|not ok) (\d+)", output, re.MULTILINE):
            found[f"{name}:{number}"] = outcome
    return found


@pytest.mark.timeout_s(1800)
def test_each_check_ends_as_natively(suite, overlay, native):
    top = suite("pjdfstest", "pjdfstest")
    expected = checks(top, native)
    assert list(expected.values()).count("ok") > 8000, "the suite does not run natively"
    found = checks(top, overlay.mount().path)
    assert_as_natively("pjdfstest", expected, found, KNOWN)
