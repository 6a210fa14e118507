#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies that each directory includes only what ARCHITECTURE.md allows. Usage: includes_test.py REPOSITORY"""

import pathlib
import re
import sys

# The files of a directory may include headers from that directory, from the directories that its row lists, and from
# the subdirectories of all of these.
STORE = ["store/threads", "store/sys", "store/profiles", "store/locks", "store/layer", "store/overlay", "store/base",
         "store/publish"]  # each may include headers of the directories before it
MAY_INCLUDE = {
    "common": set(),
    "shim": {"common"},
    "cuda_hooks": {"common"},
    **{name: {"common", *STORE[:at]} for at, name in enumerate(STORE)},
    "helper": {"common"},
    "metrics": {"helper", "common"},
    "fuse": {"store", "common"},
    "fuse/transport": {"store", "common"},
    "fuse/requests": {"common"},
    "fuse/limits": {"store/threads", "store/sys", "common"},
    "fuse/nodes": {"fuse/limits", "store", "common"},
    "fuse/jobs": {"fuse/limits", "fuse/nodes", "fuse/requests", "store", "common"},
    **{f"fuse/services/{name}": {"fuse/jobs", "fuse/limits", "fuse/nodes", "fuse/requests", "store", "common"}
       for name in ("eviction", "freshness", "locks", "publishing", "quota", "shared_files",
                    "single_flight")},
    "fuse/services/metrics": {"helper", "metrics", "store", "common"},
    "fuse/services/remote": {"fuse/jobs", "fuse/limits", "fuse/nodes", "fuse/requests", "remote", "store", "common"},
    **{name: {"fuse/services", "fuse/jobs", "fuse/limits", "fuse/nodes", "fuse/requests", "store", "common"}
       for name in ("fuse/control", "fuse/vfs")},
    "fuse/dispatch": {"fuse/vfs", "fuse/transport", "store", "common"},
    "learn": {"store", "common"},
    "remote": {"helper", "store", "common"},
    "remote/engines": {"store", "common"},
    "remote/helper": {"helper", "remote/engines", "remote", "store", "common"},
    "cli": {"learn", "locks", "metrics", "remote", "store", "common"},
    "locks": set(),
}
# Includes that are allowed although the table does not permit them.
EXCEPTIONS = {
    ("cli", "fuse/daemon.h"),  # to start the daemon
    # DaemonOptions and MountOptions contain the settings.
    ("fuse/daemon.h", "metrics/settings.h"),
    ("fuse/daemon.h", "remote/settings.h"),
    ("fuse/mount_options.h", "metrics/settings.h"),
    ("fuse/mount_options.h", "remote/settings.h"),
    ("cli/commands/cmd_learn.cc", "fuse/transport/request_trace.h"),  # to read the trace after the daemon has ended
    ("learn/request_decoder.cc", "fuse/transport/request_trace.h"),  # for the format of the records
    ("fuse/transport/ring_loop.cc", "fuse/daemon.h"),  # kRingParameter
    ("fuse/transport/session.h", "fuse/daemon.h"),  # DaemonOptions
    ("fuse/nodes/io_modes.cc", "fuse/transport/wire.h"),  # to register backing files
    ("fuse/control", "fuse/mount.h"),  # Mount, which contains the parts of a mount
    ("fuse/vfs", "fuse/mount.h"),
    ("fuse/vfs/plain_overlay.h", "fuse/daemon.h"),  # DaemonOptions
    ("fuse/dispatch/operations.cc", "fuse/control/control_session.h"),  # to pass on reads of the control file
    ("shim/embed_routes.cc", "store/profiles/profile.h"),  # a build tool, not part of the library
}
# Only files below these directories may include libfuse or use its type fuse_req_t.
MAY_USE_LIBFUSE = ("fuse/transport/", "fuse/dispatch/")
LIBFUSE = re.compile(r"^\s*#\s*include\s+<fuse|\bfuse_req_t\b", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# Meson adds each directory that has a meson.build to the include path. There, a header with one of these names would
# hide libc's header of that name, which libstdc++'s headers include.
LIBC_HEADERS = {f"{name}.h" for name in (
    "assert ctype dirent dlfcn errno fcntl features float inttypes limits link locale math mntent mqueue poll pthread "
    "sched search semaphore setjmp signal spawn stdarg stddef stdint stdio stdlib string syscall time unistd utime "
    "wait wchar").split()}


def is_below(path: str, directory: str) -> bool:
    return path.startswith(directory + "/")


def ruling(name: str) -> str:
    """Returns the row of MAY_INCLUDE for a file: the row of its innermost directory."""
    return max((row for row in MAY_INCLUDE if is_below(name, row)), key=len)


def is_allowed(name: str, header: str) -> bool:
    row = ruling(name)
    allowed = any(is_below(header, directory) for directory in {row, *MAY_INCLUDE[row]})
    excepted = any((key, header) in EXCEPTIONS for key in (name, row))
    return allowed or excepted


def offences(top: pathlib.Path) -> list[str]:
    found, read = [], 0
    for directory in sorted({row.split("/")[0] for row in MAY_INCLUDE}):
        for file in sorted((top / directory).rglob("*")):
            if file.suffix not in (".h", ".cc"):
                continue
            read += 1
            name = file.relative_to(top).as_posix()
            if file.name in LIBC_HEADERS and (file.parent / "meson.build").exists():
                found.append(f"{name} hides <{file.name}>")
            text = file.read_text()
            if LIBFUSE.search(text) and not name.startswith(MAY_USE_LIBFUSE):
                found.append(f"{name} uses libfuse")
            headers = [header for header in INCLUDE.findall(text) if "/" in header]
            found += [f"{name} includes {header}" for header in headers if not is_allowed(name, header)]
    return found if read > 50 else [f"only {read} files found below {top}"]


if __name__ == "__main__":
    lines = offences(pathlib.Path(sys.argv[1]))
    print("\n".join(lines) or "every include stays within its directory's bounds")
    sys.exit(1 if lines else 0)
