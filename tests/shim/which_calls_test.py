#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies what scripts/which-calls finds. Usage: which_calls_test.py SCRIPT PROGRAM LIBRARY STATIC_PROGRAM"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT, PROGRAM, LIBRARY, STATIC = (str(pathlib.Path(name).resolve()) for name in sys.argv[1:5])


def found(*arguments):
    """Runs the script with these arguments. Returns its lines as {(file, function)}."""
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=True)
    lines = [line.split(": ") for line in done.stdout.splitlines()]
    return {(line[0], line[1]) for line in lines}


class WhichCalls(unittest.TestCase):
    def test_lists_calls_of_program_and_library_that_are_not_interposed(self):
        self.assertEqual(found(PROGRAM), {(PROGRAM, "ftok"), (LIBRARY, "wordexp")})

    def test_lists_calls_without_a_path_on_request(self):
        self.assertEqual(found("--all", PROGRAM),
                         {(PROGRAM, "ftok"), (PROGRAM, "flistxattr"), (LIBRARY, "wordexp")})

    def test_reports_that_there_is_nothing_to_list(self):
        self.assertEqual(found("/bin/sleep") & {("/bin/sleep", "ftok")}, set())
        self.assertIn((STATIC, "static; nothing of it is interposed"), found(STATIC))

    def test_reads_a_script_as_its_interpreter(self):
        with tempfile.TemporaryDirectory() as directory:
            script = pathlib.Path(directory, "script")
            script.write_text(f"#!{PROGRAM} -x\n")
            self.assertEqual(found(str(script)), found(PROGRAM))

    def test_fails_on_a_missing_file(self):
        done = subprocess.run([SCRIPT, "/nowhere/at/all"], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("which-calls: ", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
