# SPDX-License-Identifier: Apache-2.0
"""Locks whose file is unlinked at each release, as by filelock 3.24 to 3.29."""

import collections
import errno
import fcntl
import os
import time

from agent_files import rename_noreplace


class UnlinkingLock:
    """Opens, locks with flock, and checks st_nlink; unlinks the file before the release. Counts events that do not
    occur on a local file system."""

    def __init__(self, path):
        self.path, self.errors, self._fd = path, collections.Counter(), None

    def _told(self, call, *args):
        try:
            return call(*args)
        except OSError as error:
            self.errors[f"{call.__name__}: {errno.errorcode[error.errno]}"] += 1
            return None

    def try_acquire(self):
        fd = self._told(os.open, self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        if fd is None:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        held = self._told(os.fstat, fd)
        if held is None or held.st_nlink == 0:
            os.close(fd)
            return False
        named = self._told(os.stat, self.path)
        if named and (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
            self.errors["the name leads to another file"] += 1
        self._fd = fd
        return True

    def release(self):
        self._told(os.unlink, self.path)
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


def lock_and_unlink(path, guard, count, seconds=60):
    """Takes the lock that often; `guard` is a name outside the mount that only the holder may create.

    Returns how often it had the lock, and the errors.
    """
    lock = UnlinkingLock(path)
    had, deadline = 0, time.monotonic() + seconds
    while had < count and time.monotonic() < deadline:
        if not lock.try_acquire():
            continue
        try:
            os.close(os.open(guard, os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            lock.errors["two holders"] += 1
        else:
            os.unlink(guard)
        lock.release()
        had += 1
    return had, dict(lock.errors)


def make_and_unlink(path, count):
    """Opens a file that another process creates and unlinks too, creates it if necessary, and unlinks it. Returns
    the errors."""
    errors = collections.Counter()
    for _ in range(count):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.fstat(fd)
            os.close(fd)
        except OSError as error:
            errors[errno.errorcode[error.errno]] += 1
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    return dict(errors)


def replace(name):
    """Renames a new file over the name, and unlinks the name."""
    os.close(os.open(name + ".new", os.O_WRONLY | os.O_CREAT, 0o644))
    os.rename(name + ".new", name)
    os.unlink(name)


REMOVALS = {"unlink": os.unlink, "rename": replace}


def link_and_remove(path, name, removal, count, checks_links):
    """Gives a file a second name and removes that name, repeatedly. Returns the errors."""
    errors = collections.Counter()
    for _ in range(count):
        for call, args, links in ((os.link, (path, name), 2), (REMOVALS[removal], (name,), 1)):
            try:
                call(*args)
            except OSError as error:
                errors[f"{call.__name__}: {errno.errorcode[error.errno]}"] += 1
            if checks_links and (shown := os.stat(path).st_nlink) != links:
                errors[f"{shown} links after {call.__name__}"] += 1
    return dict(errors)


def stat_until(end, path, names, most_links):
    """Stats a file, and the names that it has at times, until the name `end` exists. Returns the errors."""
    errors, was_there = collections.Counter(), False
    while not os.path.lexists(end):
        for name in names:
            try:
                was_there = bool(os.stat(name)) or was_there
            except FileNotFoundError:
                pass
        links = os.stat(path).st_nlink
        if not 1 <= links <= most_links:
            errors[f"{links} links"] += 1
    return dict(errors) if was_there else {"no name was there": 1}


def name_repeatedly(call, path, name, count):
    """Creates a file and gives it the name, by "link" or "rename", repeatedly. Returns the errors."""
    errors = collections.Counter()
    for _ in range(count):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
        try:
            getattr(os, call)(path, name)
        except FileExistsError:
            pass
        except OSError as error:
            errors[errno.errorcode[error.errno]] += 1
        if call == "link":
            os.unlink(path)
    return dict(errors)


def unlink_repeatedly(name, seconds, times=None):
    """Unlinks the name repeatedly. Returns how often the file existed. Stops early after `times` of them."""
    had, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline and had != times:
        try:
            os.unlink(name)
            had += 1
        except FileNotFoundError:
            pass
    return had


CLAIMS = {
    "rename": rename_noreplace,
    "link": os.link,
    "create": lambda own, name: os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)),
    "mkdir": lambda own, name: os.mkdir(name),
    "symlink": os.symlink,
}


def claim_repeatedly(how, directory, count):
    """Creates one name after the other, by calls that replace nothing, and opens the files that others have created.

    Before each one, it creates a file of its own. Returns how many the others had created, and the errors.
    """
    errors, others = collections.Counter(), 0
    for number in range(count):
        own, name = f"{directory}/own{number}", f"{directory}/{number}"
        os.close(os.open(own, os.O_WRONLY | os.O_CREAT, 0o644))
        try:
            CLAIMS[how](own, name)
        except FileExistsError:
            others += 1
            try:
                os.close(os.open(name, os.O_RDWR))
            except OSError as error:
                errors[errno.errorcode[error.errno]] += 1
        except OSError as error:
            errors[f"{how}: {errno.errorcode[error.errno]}"] += 1
    return others, dict(errors)
