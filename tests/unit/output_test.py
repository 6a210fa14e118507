#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies that the programs print only through functions that make texts printable (common/printable.h).

Usage: output_test.py REPOSITORY
"""

import pathlib
import re
import sys

# These files may print: they make texts printable themselves, or print no text that comes from other users.
MAY_PRINT = {"cli/text.cc", "cli/failure.cc", "cli/progress.cc", "cli/man_tables.cc", "cli/mounting/daemon_log.cc",
             "shim/report.cc", "shim/embed_routes.cc", "store/threads/lock_ranks.cc"}
PRINTS = re.compile(r"\bfmt::print|\bstd::(cout|cerr|clog)\b|\b(f|d|v|vf)?printf\s*\(|\b(std::)?f?puts\s*\(|\bperror\s*\("
                    r"|::write\((STDOUT|STDERR)_FILENO|_sink_mt\b")


def main() -> int:
    top = pathlib.Path(sys.argv[1])
    found, read = [], 0
    for directory in ("cli", "common", "cuda_hooks", "fuse", "learn", "locks", "shim", "store"):
        for file in sorted((top / directory).rglob("*.cc")):
            read += 1
            name = file.relative_to(top).as_posix()
            if name in MAY_PRINT:
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                code = line.split("//")[0]
                if PRINTS.search(code):
                    found.append(f"{name}:{number}: {line.strip()}")
    print("\n".join(found) or "all output is made printable")
    return 1 if found or read < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
