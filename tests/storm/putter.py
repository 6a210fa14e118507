#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One job's process that writes entries through Triton's own cache manager, without compiling.

All jobs write the same keys, each with its own contents, so that a reader can determine which job wrote a file. An
entry with files of two jobs is reported as an error. The script works with Triton 2.1 (temporary names end in
.tmp.pid_<pid>_<random>) and 3.x (temporary directories tmp.pid_<pid>_<uuid>).

It prints the lines READY, CALL and REPORT, as worker.py does.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import random
import sys
import time
from typing import Any

from triton.runtime import cache
from worker_report import describe

STAGES = ("ttir", "ttgir", "llir", "ptx", "cubin", "json")
LAUNCHER = "__triton_launcher.so"


def contents(job: str, key: int, stage: str) -> str:
    """Returns a text of 1 to 40 KiB, in which every line names the job, the key and the stage."""
    size = int.from_bytes(hashlib.sha256(f"{job}{key}{stage}".encode()).digest()[:2], "big") % 39000
    line = f"{job} {key} {stage}\n"
    return line * (1 + (1024 + size) // len(line))


def writer_of(text: str) -> str:
    """Returns the job that wrote this text, or "torn: …" if it is not one job's complete text."""
    lines = set(text.splitlines())
    if len(lines) != 1 or not text.endswith("\n"):
        return f"torn: {sorted(lines)[:3]}"
    return text.split(" ", 1)[0]


def manager_of(kind: str, key: int) -> Any:
    return cache.get_cache_manager(hashlib.sha256(f"{kind} {key}".encode()).hexdigest())


def writers_in(group: dict[str, str]) -> set[str]:
    writers = set()
    for path in group.values():
        with open(path) as file:
            writers.add(writer_of(file.read()))
    return writers


class Putter:
    """Does for each key what triton.compile() does: looks it up, writes all stages and the group, and reads them."""

    def __init__(self, job: str, look_first: bool) -> None:
        self.job = job
        self.look_first = look_first
        self.hits = 0
        self.errors: list[dict[str, Any]] = []
        # Triton 2.1 writes every stage twice; 3.x writes it once.
        self.puts_a_stage = 1 if "uuid" in inspect.getsource(cache) else 2

    def visit(self, key: int) -> None:
        try:
            self._visit_launcher(key)
            manager = manager_of("kernel", key)
            group = manager.get_group("k.json") if self.look_first else None
            if group:
                self.hits += 1
            else:
                self._put(manager, key)
                group = manager.get_group("k.json")
            self._check(group)
        except Exception as error:  # record any error
            self.errors.append(describe(error, key))
        print("CALL", flush=True)

    def _visit_launcher(self, key: int) -> None:
        """A launcher is a single file in its own directory, so the file alone completes the entry."""
        manager = manager_of("launcher", key)
        path = manager.get_file(LAUNCHER) if self.look_first else None
        if not path:
            path = manager.put(contents(self.job, key, "so"), LAUNCHER)
        with open(path) as file:
            writer = writer_of(file.read())
        if writer.startswith("torn"):
            raise RuntimeError(f"a launcher in pieces: {writer}")

    def _put(self, manager: Any, key: int) -> None:
        group = {}
        for stage in STAGES:
            for _ in range(self.puts_a_stage):
                group[f"k.{stage}"] = manager.put(contents(self.job, key, stage), f"k.{stage}")
        manager.put_group("k.json", group)

    def _check(self, group: dict[str, str] | None) -> None:
        if not group or len(group) != len(STAGES):
            raise RuntimeError(f"the entry just written cannot be read back: {group}")
        writers = writers_in(group)
        if len(writers) != 1:
            raise RuntimeError(f"an entry with files of several writers: {sorted(writers)}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True)
    parser.add_argument("--keys", type=int, default=24)
    parser.add_argument("--look-first", action="store_true", help="get_group() before any put()")
    parser.add_argument("--seed", type=int, help="seed `random`, as training scripts do")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    putter = Putter(arguments.job, arguments.look_first)
    print("READY", flush=True)
    sys.stdin.readline()
    start = time.monotonic()
    for key in range(arguments.keys):
        if arguments.seed is not None:
            random.seed(arguments.seed + key)
        putter.visit(key)
    report = {
        "uid": os.getuid(),
        "pid": os.getpid(),
        "calls": arguments.keys,
        "hits": putter.hits,
        "errors": putter.errors,
        "kernels": {},
        "wall": time.monotonic() - start,
        "cpu": time.process_time(),
    }
    print("REPORT " + json.dumps(report), flush=True)
    return 1 if putter.errors else 0


if __name__ == "__main__":
    sys.exit(main())
