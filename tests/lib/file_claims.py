# SPDX-License-Identifier: Apache-2.0
"""Divides the test files between two simultaneous runs of pytest (mount_tests_in_two_labs in scripts/lib/stages.sh).

With --claimed-files, a run executes the tests of a file only if it begins the file before the other run does.
"""

import itertools
import pathlib

import pytest


def pytest_addoption(parser):
    parser.addoption("--claimed-files", type=pathlib.Path, metavar="DIR",
                     help="a directory that both runs share, with one file for each test file that a run has begun")
    parser.addoption("--lab", type=int, help="the run's number, with --claimed-files")


class BegunFiles:
    """Decides which test files this run executes. A file belongs to the run that creates its name in `directory`."""

    def __init__(self, directory, starts_at_the_end):
        self._directory = directory
        self._starts_at_the_end = starts_at_the_end
        self._is_own = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        if self._starts_at_the_end:
            files = [list(tests) for _, tests in itertools.groupby(items, lambda item: item.path)]
            items[:] = itertools.chain.from_iterable(reversed(files))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        return None if self._begins(item.path) else True  # True: pytest neither runs nor reports the test

    def _begins(self, path):
        if path not in self._is_own:
            try:
                (self._directory / str(path).replace("/", "%")).touch(exist_ok=False)
                self._is_own[path] = True
            except FileExistsError:
                self._is_own[path] = False
        return self._is_own[path]


def pytest_configure(config):
    if directory := config.getoption("--claimed-files"):
        # The runs begin at different ends of the list, so that they end at about the same time.
        config.pluginmanager.register(BegunFiles(directory, config.getoption("--lab") == 2))
