# SPDX-License-Identifier: Apache-2.0
"""Functions that a malicious process of a job calls (lib/agent.py)."""

import contextlib
import fcntl
import os


def send_requests(control, count, text):
    """Sends `count` requests. Opens the control file for each one, and closes it without reading the reply."""
    for _ in range(count):
        fd = os.open(control, os.O_RDWR)
        with contextlib.suppress(OSError):
            os.write(fd, text)
        os.close(fd)


def make_deep(top, most):
    """Creates up to `most` nested directories, as deep as possible, and returns their depth."""
    before = os.getcwd()
    os.chdir(top)
    depth = 0
    try:
        while depth < most:
            os.mkdir("d")
            os.chdir("d")
            depth += 1
    except OSError:
        pass
    os.chdir(before)
    return depth


def try_to_lock(path, exclusive=True):
    """Tries flock and fcntl locks on the file, and keeps those that it gets. Returns their kinds, or the errno of the
    open. The fcntl lock is shared, because the file is open only for reading."""
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
    """Tries to lock every file and directory below `top`; returns those that it could open."""
    locked = []
    for directory, _, files in os.walk(top):
        for name in [".", *files]:
            path = os.path.join(directory, name)
            if isinstance(try_to_lock(path), list):
                locked.append(os.path.relpath(path, top))
    return locked
