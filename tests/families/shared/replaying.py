# SPDX-License-Identifier: Apache-2.0
"""Simulates users of a program that needs a GPU. They make the program's file-system calls in the same order as the
program. Each user.py cites the program's source code.

A simulated build takes BUILD_S, so that builds by several users overlap.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator

import steps

KEYS = tuple(letter * 16 for letter in "abcd")
BUILD_S = 0.2


class BuildFailed(Exception):
    pass


def build(key: str) -> bytes:
    """Simulates the compiler: records a build, and returns the output for a key; fails for the key "broken"."""
    steps.note_build(key)
    time.sleep(BUILD_S)
    if key == "broken":
        raise BuildFailed("cannot be built")
    return f"of {key}".encode() * 1000


def check(key: str, data: bytes) -> None:
    if data != f"of {key}".encode() * 1000:
        raise RuntimeError(f"{key} holds {len(data)} other bytes")


@contextlib.contextmanager
def removed_on_failure(directory: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def write_and_rename(path: pathlib.Path, temporary: pathlib.Path, data: bytes) -> None:
    temporary.write_bytes(data)
    os.replace(temporary, path)


def run(get: Callable[[str], bytes]) -> None:
    """Runs the steps of a user: each calls `get(key)`, which returns the cached result for a key and builds it if it is
    missing, and checks the result."""
    def step(key: str) -> None:
        check(key, get(key))

    steps.run({key: functools.partial(step, key) for key in KEYS},
              broken=functools.partial(step, "broken"))
