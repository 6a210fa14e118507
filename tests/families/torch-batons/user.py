# SPDX-License-Identifier: Apache-2.0
"""Builds three extensions as torch ≤ 2.13 does, under a FileBaton: torch 2.13.0 (PyPI), torch/utils/cpp_extension.py:
_jit_compile. A process that finds the baton waits for its removal, and then loads the result without building it.

torch 2.15 still contains FileBaton, but uses FileLock; this script replaces FileLock with FileBaton. Unlike torch, the
script waits at most LONGEST_WAIT_S: in the native run, a killed builder's baton stays, and torch would wait forever.
"""

import os
import pathlib
import sys
import time
from types import TracebackType
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import extensions  # noqa: E402
from torch.utils import cpp_extension  # noqa: E402
from torch.utils.file_baton import FileBaton  # noqa: E402

LONGEST_WAIT_S = 30

held: list[FileBaton] = []
build = cpp_extension._write_ninja_file_and_build_library


class Baton:
    """Replaces FileLock in cpp_extension: holds a FileBaton, or waits for another process's baton."""

    def __init__(self, path: str):
        self._path = path

    def __enter__(self) -> None:
        baton = FileBaton(self._path)
        if baton.try_acquire():
            held.append(baton)
            return
        deadline = time.monotonic() + LONGEST_WAIT_S
        while os.path.exists(self._path):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._path} stays")
            time.sleep(baton.wait_seconds)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        while held:
            held.pop().release()


def build_if_held(*args: Any, **kwargs: Any) -> None:
    if held:
        build(*args, **kwargs)


cpp_extension.FileLock = Baton
cpp_extension._write_ninja_file_and_build_library = build_if_held
extensions.run()
