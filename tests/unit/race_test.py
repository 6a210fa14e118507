#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the parts of bench/race, the comparison with other file systems, that need no mount.

Usage: race_test.py REPOSITORY RACE_WORKER
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

REPOSITORY, WORKER = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(REPOSITORY / "bench/race"))

from bars import Bar, bars  # noqa: E402
from contestants import NATIVE, OURS  # noqa: E402
from rows import ROWS  # noqa: E402
from sampling import Cell, Sample  # noqa: E402
from summary import Summary, cpu  # noqa: E402

KEYS = "20"
FILES = 160


def work(*arguments: object) -> subprocess.CompletedProcess:
    command = [WORKER, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def sizes(tree: pathlib.Path) -> dict[str, int]:
    return {str(path.relative_to(tree)): path.stat().st_size for path in tree.rglob("*.*")}


class Worker(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.tree = pathlib.Path(scratch.name) / "tree"
        self.assertEqual(work("tree", self.tree, "--keys", KEYS).returncode, 0)

    def row(self, name: str, *arguments: object) -> dict:
        result = work("row", self.tree, name, "--keys", KEYS, "--seconds", 0.02, *arguments)
        self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
        return json.loads(result.stdout)

    def test_tree_is_8_files_of_1_to_60_kib_a_key(self) -> None:
        found = sizes(self.tree)
        self.assertEqual(len(found), FILES)
        self.assertTrue(all(1024 <= size <= 61440 for size in found.values()))
        self.assertGreater(len(set(found.values())), FILES // 2)

    def test_every_row_runs_and_the_tree_can_be_mended(self) -> None:
        before = sizes(self.tree)
        for row in ROWS:
            for processes in row.processes:
                told = self.row(row.name, "--processes", processes, "--seed", processes)
                self.assertGreater(told["operations"], 0, row.name)
                self.assertGreater(told["own_cpu"], 0, row.name)
            work("tree", self.tree, "--keys", KEYS)
            self.assertEqual(sizes(self.tree), before, row.name)

    def test_first_touch_reads_each_file_once_among_all_processes(self) -> None:
        for processes in (1, 3):
            told = self.row("first", "--processes", processes)
            self.assertEqual(told["operations"], FILES)

    def test_commit_leaves_files_under_new_keys_and_no_temporary_directory(self) -> None:
        told = self.row("commit", "--processes", 2)
        self.assertEqual(len(sizes(self.tree)), FILES + told["operations"])
        self.assertEqual([*self.tree.rglob("tmp.*")], [])

    def test_overwrite_and_copy_up_make_no_new_files(self) -> None:
        self.row("overwrite")
        self.assertIn(8192, sizes(self.tree).values())
        self.row("copy-up")
        self.assertEqual(len(sizes(self.tree)), FILES)

    def test_a_failed_operation_fails_the_row_and_names_the_call(self) -> None:
        for path in self.tree.rglob("kernel.ptx"):
            path.unlink()
        for processes in (1, 4):
            result = work("row", self.tree, "first", "--keys", KEYS, "--processes", processes)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stdout, "")
            self.assertRegex(result.stderr, r"open '.*/kernel\.ptx': No such file")

    def test_walk_counts_directories_and_files(self) -> None:
        result = work("walk", self.tree)
        self.assertEqual(json.loads(result.stdout)["entries"], FILES + int(KEYS))


def cell(*rates: float, cpu_us: float = 10, others: float = 0) -> Cell:
    return Cell([Sample(rate, cpu_us, cpu_us, others) for rate in rates])


class Figures(unittest.TestCase):
    def test_ratio_is_the_median_of_ratios_within_a_round(self) -> None:
        # In the second round, all rates are half as high, as if the machine had become slower.
        summary = Summary({
            ("hit", 1, NATIVE): cell(100, 50, 80), ("hit", 1, OURS): cell(50, 25, 20),
        })
        self.assertEqual(summary.ratio("hit", 1, OURS, NATIVE), 0.5)

    def test_best_peer_is_the_fastest_fuse_overlay_and_not_the_kernels(self) -> None:
        summary = Summary({
            ("hit", 1, OURS): cell(90), ("hit", 1, "overlayfs"): cell(80),
            ("hit", 1, "mergerfs"): cell(30, cpu_us=9),
            ("hit", 1, "unionfs-fuse"): cell(20, cpu_us=5),
            ("hit", 1, "fuse-overlayfs"): Cell(failure="cannot"),
        })
        self.assertEqual(summary.best_peer("hit", 1), "mergerfs")
        self.assertEqual(summary.peer_with_least_cpu("hit", 1), "unionfs-fuse")
        self.assertEqual(summary.ratio("hit", 1, OURS, "unionfs-fuse", cpu), 2)

    def test_a_cell_is_noisy_when_half_of_it_was_disturbed(self) -> None:
        summary = Summary({
            ("hit", 1, OURS): Cell([Sample(1, 1, 1, 0.5), Sample(1, 1, 1, 0.1)]),
            ("hit", 1, NATIVE): cell(1, 1), ("hit", 4, OURS): cell(1, others=0.3),
        })
        self.assertTrue(summary.noisy("hit", 1, OURS))
        self.assertTrue(summary.noisy("hit", 4, OURS))
        self.assertFalse(summary.noisy("hit", 1, NATIVE))

    def test_bars_say_what_is_below(self) -> None:
        hit = [row for row in ROWS if row.name == "hit"]
        summary = Summary({
            ("hit", 1, OURS): cell(30, cpu_us=4), ("hit", 1, "mergerfs"): cell(10, cpu_us=10),
            ("hit", 4, OURS): cell(15, cpu_us=6), ("hit", 4, "mergerfs"): cell(10, cpu_us=10),
        })
        self.assertEqual([(bar.seen, bar.met) for bar in bars(summary, hit)],
                         [(3, True), (1.5, False), (0.4, True), (0.6, False), (0.5, False)])

    def test_a_bar_that_limits_is_met_from_below(self) -> None:
        self.assertTrue(Bar("walk", 60, 59, at_most=True).met)
        self.assertFalse(Bar("walk", 60, 61, at_most=True).met)
        self.assertIn("above", Bar("walk", 60, 61, at_most=True).line())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
