#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that cleans the cache: every 50 ms it removes a random key directory, as users do.

In a plain shared directory, the job removes the entries of all users; through cacheshim, it removes only those of its
own view. The job ends when its stdin is closed. It prints the lines READY and REPORT, as worker.py does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import sys


def remove_one(root: str, errors: list[dict[str, object]]) -> int:
    """Tries to remove one key directory; returns 0 if there is none, otherwise 1."""
    keys = os.listdir(root) if os.path.isdir(root) else []
    if not keys:
        return 0
    path = os.path.join(root, random.choice(keys))
    try:
        shutil.rmtree(path)
    except OSError as error:
        errors.append(
            {
                "kernel": -1,
                "type": type(error).__name__,
                "errno": error.errno,
                "path": str(error.filename),
                "message": str(error),
            }
        )
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    root = parser.parse_args().root
    errors: list[dict[str, object]] = []
    removed = 0
    print("READY", flush=True)
    while True:
        removed += remove_one(root, errors)  # try at least once, so that the job exists and can be ended
        ready, _, _ = select.select([sys.stdin], [], [], 0.05)
        if ready and not sys.stdin.readline():
            break
    report = {
        "calls": removed,
        "errors": errors,
        "hits": 0,
        "kernels": {},
        "wall": 0.0,
        "cpu": 0.0,
    }
    print("REPORT " + json.dumps(report), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
