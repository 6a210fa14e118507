# SPDX-License-Identifier: Apache-2.0
"""The calls of a malicious process of a job."""

import contextlib
import fcntl
import os


def send_requests(control, count, text):
    """Sends each request on an open file of its own, and closes it without reading the reply."""
    for _ in range(count):
        fd = os.open(control, os.O_RDWR)
        with contextlib.suppress(OSError):
            os.write(fd, text)
        os.close(fd)


def make_deep(top, most):
    """Makes nested directories, and returns their number."""
    before = os.getcwd()
    os.chdir(top)
    depth = 0
    try:
        for depth in range(most):
            os.mkdir("d")
            os.chdir("d")
    except OSError:
        pass
    os.chdir(before)
    return depth


def try_to_lock(path, exclusive=True):
    """Tries every kind of lock on the file; returns the kinds that succeeded, and keeps those locks."""
    taken = []
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        return error.errno
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    for name, call in (("flock", fcntl.flock), ("fcntl", fcntl.lockf)):
        with contextlib.suppress(OSError):
            call(fd, (kind if name == "flock" else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            taken.append(name)
    return taken


def lock_all_below(top):
    """Tries to lock every file below `top` that can be opened; returns the locked ones."""
    locked = []
    for directory, _, files in os.walk(top):
        for name in [".", *files]:
            path = os.path.join(directory, name)
            if isinstance(try_to_lock(path), list):
                locked.append(os.path.relpath(path, top))
    return locked
