#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests scripts/lib/stage_table.py, which records the passes of the long stages.

Usage: stage_table_test.py REPOSITORY
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(sys.argv[1])
TOOL = REPOSITORY / "scripts/lib/stage_table.py"
STAGES = """
common = ["common"]
program = ["program"]
[stage.one]
about = "the first"
sources = ["first"]
[stage.two]
about = "the second"
sources = ["second"]
library_only = true
"""


class StageTable(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.top = pathlib.Path(scratch.name)
        self.git("init", "-q")
        (self.top / "tests").mkdir()
        (self.top / "tests/stages.toml").write_text(STAGES)
        for name in ("common", "program", "first", "second"):
            (self.top / name).write_text(name)
        self.commit()

    def git(self, *words):
        subprocess.run(["git", "-C", self.top, "-c", "user.name=a", "-c", "user.email=a@a", *words],
                       check=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")

    def table(self, *words):
        return subprocess.run([sys.executable, "-B", TOOL, self.top, *words], check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def due(self):
        return self.table("names", "--due").split()

    def record(self, name, tested=None):
        tested = tested or self.table("hash", name).strip()
        self.table("record", name, tested, "90", "3 passed, 0 failed")

    def test_stages_that_never_passed_are_due(self):
        self.assertEqual(self.due(), ["one", "two"])

    def test_a_recorded_pass_is_valid_and_shown(self):
        self.record("one")
        self.assertEqual(self.due(), ["two"])
        self.assertRegex(self.table("show"), r"one +valid .*2 min, 3 passed, 0 failed")

    def test_a_change_of_its_sources_ends_a_pass(self):
        self.record("one")
        self.record("two")
        (self.top / "second").write_text("changed")
        self.commit()
        self.assertEqual(self.due(), ["two"])
        self.assertRegex(self.table("show"), "two +sources changed")

    def test_a_change_of_common_sources_ends_every_pass(self):
        self.record("one")
        self.record("two")
        (self.top / "common").write_text("changed")
        self.commit()
        self.assertEqual(self.due(), ["one", "two"])

    def test_a_change_of_the_program_keeps_a_pass_of_the_library_alone(self):
        self.record("one")
        self.record("two")
        (self.top / "program").write_text("changed")
        self.commit()
        self.assertEqual(self.due(), ["one"])

    def test_a_pass_with_uncommitted_sources_is_not_recorded(self):
        (self.top / "first").write_text("changed")
        self.record("one")
        self.assertEqual(self.due(), ["one", "two"])

    def test_a_pass_of_sources_that_changed_meanwhile_is_not_recorded(self):
        tested = self.table("hash", "one").strip()
        (self.top / "first").write_text("changed")
        self.commit()
        self.record("one", tested)
        self.assertEqual(self.due(), ["one", "two"])

    def test_the_record_is_no_source_of_a_stage(self):
        with open(self.top / "tests/stages.toml", "a", encoding="utf-8") as stages:
            stages.write('[stage.three]\nabout = "all tests"\nsources = ["tests"]\n')
        self.commit()
        self.record("one")
        self.record("three")
        self.commit()
        self.record("two")
        self.assertEqual(self.due(), [])

    def test_the_sources_of_every_stage_exist(self):
        sys.path.insert(0, str(TOOL.parent))
        from stage_table import Stages
        stages = Stages(REPOSITORY)
        for name in stages.names():
            for source in stages.sources(name):
                self.assertTrue((REPOSITORY / source).exists(), f"stage {name}: {source}")

    def test_every_stage_has_a_function(self):
        functions = re.findall(r"^stage_(\w+)\(\)", (REPOSITORY / "scripts/lib/long_stages.sh").read_text(),
                               re.MULTILINE)
        self.assertEqual(sorted(functions), sorted(self.names_of_repository()))

    def names_of_repository(self):
        return subprocess.run([sys.executable, "-B", TOOL, REPOSITORY, "names"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout.split()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
