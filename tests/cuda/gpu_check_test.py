# SPDX-License-Identifier: Apache-2.0
"""Tests scripts/gpu-check with shell scripts instead of the CUDA demo. Usage: gpu_check_test.py REPOSITORY LIBRARY"""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import sys
import tempfile
import unittest

repository, library = sys.argv[1:3]
del sys.argv[1:3]
WENT_THROUGH = "echo 'launch 1.5 ms, copy 0.2 ms, timed_out 0, result 42, device memory in use 7 MiB'"


def load_gpu_check():
    loader = importlib.machinery.SourceFileLoader("gpu_check", f"{repository}/scripts/gpu-check")
    sys.dont_write_bytecode = True
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


def run(script):
    """Runs gpu-check with this shell script as the demo; returns the lines of its table and its exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        program = pathlib.Path(scratch, "demo")
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        os.environ.update(CACHESHIM_LIB=library, CACHESHIM_HOOKS_LIB="/nonexistent")
        sys.argv = ["gpu-check"]
        gpu_check = load_gpu_check()
        gpu_check.find_program = lambda runtime: program if runtime == "static" else None
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            try:
                gpu_check.main()
            except SystemExit as end:
                return out.getvalue().splitlines(), end.code
    raise AssertionError("it did not end by an exit status")


class GpuCheck(unittest.TestCase):
    """Tests the verdicts of scripts/gpu-check."""

    def row(self, lines, what):
        return next(line for line in lines if f"| {what} |" in line)

    def test_a_machine_that_behaves_as_predicted(self):
        lines, code = run(
            f"[ \"$1\" = --preload=attr ] || [ \"$CACHESHIM_CUDA_EAGER$CACHESHIM_CUDA_MATCH\" = "
            f"selecttail_kernel ] || [ \"$1\" = --set=LAZY ] || [ \"$CUDA_MODULE_LOADING\" = EAGER ] "
            f"|| exit 3; {WENT_THROUGH}")
        self.assertEqual(code, 0, lines)
        self.assertIn("dead-locked: as predicted", self.row(lines, "as it is"))
        self.assertIn("launch 1.5 ms, copy 0.2 ms, device 7 MiB", self.row(lines, "the library"))
        self.assertIn("not run", self.row(lines, "the hooks without the constructor"))

    def test_a_library_without_effect_fails(self):
        lines, code = run("exit 3")
        self.assertEqual(code, 1)
        self.assertIn("dead-locked: **not as predicted**", self.row(lines, "the library"))

    def test_a_machine_without_the_deadlock_is_inconclusive(self):
        lines, code = run("exit 0")
        self.assertEqual(code, 1)
        rows = [line for line in lines if line.startswith("| static") and "not run" not in line]
        self.assertTrue(all("inconclusive" in row for row in rows) and len(rows) > 5, lines)

    def test_no_device(self):
        lines, code = run("echo 'SKIP: no CUDA device'; exit 77")
        self.assertEqual((lines, code), ([], 77))


if __name__ == "__main__":
    unittest.main(verbosity=2)
