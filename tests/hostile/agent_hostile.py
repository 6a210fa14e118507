# SPDX-License-Identifier: Apache-2.0
"""Calls of a malicious process of a job."""

import contextlib
import fcntl
import os


def send_requests(control, count, text):
    """Sends each request on its own open file, which is closed without a read."""
    for _ in range(count):
        fd = os.open(control, os.O_RDWR)
        with contextlib.suppress(OSError):
            os.write(fd, text)
        os.close(fd)


def make_deep(top, most):
    """Makes nested directories, and returns how many."""
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
    """Tries every kind of lock on the file; returns those that worked, and keeps them."""
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
    """Tries to lock every file that can be opened there; returns the locked ones."""
    locked = []
    for directory, _, files in os.walk(top):
        for name in [".", *files]:
            path = os.path.join(directory, name)
            if isinstance(try_to_lock(path), list):
                locked.append(os.path.relpath(path, top))
    return locked
