#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies that store/ or fuse/ uses each counter of common/counters.def. Usage: counters_test.py REPOSITORY"""

import pathlib
import re
import sys

# `cacheshim stats --json` must print these keys, although no code increments them. Their values are always 0.
ALWAYS_ZERO = {"worker_restarts"}


def offences(repository):
    table = (repository / "common/counters.def").read_text()
    counters = set(re.findall(r"^CACHESHIM_COUNTER\((\w+)", table, re.MULTILINE))
    sources = "".join(file.read_text() for top in ("store", "fuse")
                      for file in sorted((repository / top).rglob("*.cc")))
    counted = set(re.findall(r"\bcounters_?\.(\w+)", sources))
    return ([f"nothing counts '{name}'" for name in sorted(counters - counted - ALWAYS_ZERO)] +
            [f"'{name}' is counted" for name in sorted(ALWAYS_ZERO & counted)] +
            ([] if counters else ["the table has no counters"]))


if __name__ == "__main__":
    lines = offences(pathlib.Path(sys.argv[1]))
    print("\n".join(lines) or "each counter is counted")
    sys.exit(1 if lines else 0)
