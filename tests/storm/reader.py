#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every entry of a cache directory repeatedly while putter.py jobs write it.

An entry must be complete as soon as it is visible: all its files exist, and one job wrote them all. The process ends
when its stdin is closed. It prints the lines READY and REPORT, as worker.py does.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys

STAGES = ("ttir", "ttgir", "llir", "ptx", "cubin", "json")
LAUNCHER = {"__triton_launcher.so"}
EXPECTED = {f"k.{stage}" for stage in STAGES} | {"__grp__k.json"}


def writer_of(text: str) -> str:
    lines = set(text.splitlines())
    if len(lines) != 1 or not text.endswith("\n"):
        return f"torn: {sorted(lines)[:3]}"
    return text.split(" ", 1)[0]


def fault_of(directory: str) -> str | None:
    """Returns what is wrong with the entry, or None."""
    names = set(os.listdir(directory))
    if names not in (EXPECTED, LAUNCHER):
        return f"files {sorted(names)}"
    writers = {}
    for name in sorted(names - {"__grp__k.json"}):
        with open(os.path.join(directory, name)) as file:
            writers[name] = writer_of(file.read())
    torn = [writer for writer in writers.values() if writer.startswith("torn")]
    if torn or names == LAUNCHER:
        return torn[0] if torn else None
    with open(os.path.join(directory, "__grp__k.json")) as file:
        children = json.load(file)["child_paths"]
    if len(children) != len(STAGES):
        return f"group of {len(children)} files"
    return f"writers {writers}" if len(set(writers.values())) != 1 else None


def look(root: str, faults: list[str], entries: set[str]) -> None:
    try:
        keys = sorted(os.listdir(root))
    except FileNotFoundError:
        return
    for key in keys:
        try:
            fault = fault_of(os.path.join(root, key))
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        entries.add(key)
        if fault:
            faults.append(f"{key}: {fault}")


def stdin_ended() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0.002)
    return bool(ready) and not sys.stdin.readline()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    root = parser.parse_args().root
    faults: list[str] = []
    entries: set[str] = set()
    rounds = 0
    print("READY", flush=True)
    while True:
        ended = stdin_ended()
        look(root, faults, entries)  # one last time after stdin was closed
        rounds += 1
        if ended:
            break
    report = {
        "calls": rounds,
        "entries": len(entries),
        "faults": len(faults),
        "errors": [
            {"kernel": -1, "type": "fault", "errno": None, "path": "", "message": fault}
            for fault in faults[:20]
        ],
        "hits": 0,
        "kernels": {},
        "wall": 0.0,
        "cpu": 0.0,
    }
    print("REPORT " + json.dumps(report), flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
