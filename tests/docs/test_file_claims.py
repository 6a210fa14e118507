# SPDX-License-Identifier: Apache-2.0
"""Two simultaneous runs of pytest divide the test files between them, as in scripts/test."""

import re
import subprocess
import sys

import mounts

FILES, TESTS_OF_EACH = 12, 3


def test_two_runs_execute_each_test_once(scratch):
    tests = "".join(f"def test_{number}(): pass\n" for number in range(TESTS_OF_EACH))
    for number in range(FILES):
        (scratch / f"test_file_{number}.py").write_text(tests)
    begun = scratch / "begun"
    begun.mkdir()
    runs = [subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "file_claims", "-p", "no:cacheprovider", "-v", scratch,
         f"--claimed-files={begun}", f"--lab={lab}", f"--rootdir={scratch}"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(mounts.REPOSITORY / "tests/lib")},
        stdout=subprocess.PIPE, text=True) for lab in (1, 2)]
    passed = []
    for run in runs:
        output, _ = run.communicate(timeout=60)
        assert run.returncode == 0, output
        passed += re.findall(r"(test_file_\d+\.py::test_\d+) PASSED", output)
    assert sorted(passed) == sorted(f"test_file_{file}.py::test_{number}"
                                    for file in range(FILES) for number in range(TESTS_OF_EACH))
