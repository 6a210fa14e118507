#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which folder may include which (ARCHITECTURE.md). Usage: includes_test.py REPOSITORY"""

import pathlib
import re
import sys

MAY_INCLUDE = {
    "common": {"common"},
    "shim": {"shim", "common"},
    "cuda_hooks": {"cuda_hooks", "common"},
    "store": {"store", "common"},
    "fuse": {"fuse", "store", "common"},
    "learn": {"learn", "store", "common"},
    "cli": {"cli", "learn", "locks", "store", "common"},
    "locks": {"locks"},
}
# The edges of a folder: what of another one may be named all the same.
EXCEPTIONS = {
    ("cli", "fuse/daemon.h"),  # how the program starts the daemon
    ("cli/cmd_learn.cc", "fuse/request_trace.h"),  # what it reads when that has ended
    ("learn/request_decoder.cc", "fuse/request_trace.h"),  # the form of the records
    ("shim/embed_routes.cc", "store/profile.h"),  # a tool of the build, no part of the library
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def offences(top: pathlib.Path) -> list[str]:
    found, read = [], 0
    for folder, allowed in MAY_INCLUDE.items():
        for file in sorted((top / folder).rglob("*")):
            if file.suffix not in (".h", ".cc"):
                continue
            read += 1
            name = file.relative_to(top).as_posix()
            for header in INCLUDE.findall(file.read_text()):
                target = header.split("/")[0]
                if "/" not in header or target in allowed:
                    continue
                if (folder, header) not in EXCEPTIONS and (name, header) not in EXCEPTIONS:
                    found.append(f"{name} includes {header}")
    return found if read > 50 else [f"only {read} files found below {top}"]


if __name__ == "__main__":
    lines = offences(pathlib.Path(sys.argv[1]))
    print("\n".join(lines) or "every include stays within its folder's bounds")
    sys.exit(1 if lines else 0)
