# SPDX-License-Identifier: Apache-2.0
"""A writer changes one name after another and announces each change; checkers verify that announced changes are
visible.

Each checker completes a round before the first change, one between the last two changes, and one after the last
change: the writer waits for the first two. So a run cannot pass only because a checker was too slow to check anything.
"""

import collections
import mmap
import os
import random
import struct
import time

from agent_files import read_file, write_file
from agent_streams import close_stream, names_of_stream, open_stream

DEADLINE_S = 50


class Board:
    """Memory shared by the writer and the checkers: the number of announced changes, then the number of rounds of
    each checker."""

    def __init__(self, path):
        with open(path, "r+b", buffering=0) as file:
            self._shared = mmap.mmap(file.fileno(), 0)

    def announced(self):
        return self._get(0)

    def announce(self, changes):
        self._set(0, changes)

    def end_round(self, checker):
        self._set(1 + checker, self._get(1 + checker) + 1)

    def wait_for_rounds(self, count):
        """Blocks until each checker has completed `count` more rounds."""
        deadline = time.monotonic() + DEADLINE_S
        slots = range(1, len(self._shared) // 8)
        wanted = {slot: self._get(slot) + count for slot in slots}
        while any(self._get(slot) < rounds for slot, rounds in wanted.items()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"a checker did not end {count} rounds within {DEADLINE_S} s")
            time.sleep(0.001)

    def _get(self, slot):
        return struct.unpack_from("<Q", self._shared, 8 * slot)[0]

    def _set(self, slot, value):
        struct.pack_into("<Q", self._shared, 8 * slot, value)


def _announce_in_turn(board, count, change):
    board.wait_for_rounds(1)
    for number in range(count):
        if number == count - 1:
            board.wait_for_rounds(2)  # the second round begins after the previous announcement
        change(number)
        board.announce(number + 1)


def _rounds(board, checker, count):
    """Yields the number of announced changes once per round, until it is `count`."""
    announced = 0
    while announced < count:
        announced = board.announced()
        yield announced
        board.end_round(checker)


def _announced_names(announced, pick):
    if announced > 0:
        yield "last", announced - 1
    if announced > 1:
        yield "earlier", pick.randrange(announced - 1)


def replace_in_turn(top, count, board):
    """Replaces the files 0 to count - 1 of the base, one after another."""
    def change(number):
        write_file(f"{top}/{number}.new", b"new")
        os.rename(f"{top}/{number}.new", f"{top}/{number}")

    _announce_in_turn(Board(board), count, change)


def check_replaced(top, count, board, checker):
    """Reads files whose replacement was announced; returns the number of checks of each kind, and the files that still
    had the base's content."""
    checks, wrong, pick = collections.Counter(), [], random.Random(count)
    for announced in _rounds(Board(board), checker, count):
        for kind, number in _announced_names(announced, pick):
            checks[kind] += 1
            if read_file(f"{top}/{number}") != b"new" or os.stat(f"{top}/{number}").st_size != 3:
                wrong.append((kind, number))
    return checks, wrong


def fill_in_turn(top, count, board):
    """Creates a subdirectory in each of the base's directories 0 to count - 1, one after another."""
    _announce_in_turn(Board(board), count, lambda number: os.mkdir(f"{top}/{number}/new"))


def check_filled(top, count, board, checker):
    """Lists directories whose change was announced; returns the number of checks of each kind, and the directories that
    were listed without the new subdirectory."""
    checks, wrong, pick = collections.Counter(), [], random.Random(count)
    streams = {}
    for announced in _rounds(Board(board), checker, count):
        if announced + 5 < count and announced + 5 not in streams:
            streams[announced + 5] = open_stream(f"{top}/{announced + 5}")
        for kind, number in _announced_names(announced, pick):
            checks[kind] += 1
            if os.listdir(f"{top}/{number}") != ["new"]:
                wrong.append((kind, number))
        for number in [one for one in streams if one < announced]:
            checks["opened before"] += 1
            if "new" not in names_of_stream(streams[number]):
                wrong.append(("opened before", number))
            close_stream(streams.pop(number))
    return checks, wrong
