# SPDX-License-Identifier: Apache-2.0
"""Operations on locks whose file is unlinked at each release, as in filelock 3.24 to 3.29."""

import collections
import errno
import fcntl
import os
import random
import time

from agent_files import rename_noreplace


class UnlinkingLock:
    """A lock on a file. To acquire it, a process opens the file, locks it with flock(2), and checks st_nlink. To
    release it, the process unlinks the file, and then unlocks it. `errors` counts results that do not occur on a local
    file system."""

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
    """Acquires and releases the lock `count` times, or until `seconds` have passed.

    While the process holds the lock, it creates `guard`, a name outside the mount, with O_EXCL. That call fails if
    another process holds the lock too. Returns how often it acquired the lock, and the errors.
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
    """Opens a file, creates it if it does not exist, and unlinks it, repeatedly; another process does the same. Returns
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
    """Renames a new file to the name, which replaces the old file, and unlinks the name."""
    os.close(os.open(name + ".new", os.O_WRONLY | os.O_CREAT, 0o644))
    os.rename(name + ".new", name)
    os.unlink(name)


REMOVALS = {"unlink": os.unlink, "rename": replace}


def link_and_remove(path, name, removal, count, checks_links):
    """Links a second name to a file and removes that name, repeatedly. Returns the errors."""
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
    """Stats a file, and the names that other processes link to it and remove, until the name `end` exists. Returns the
    errors: a link count of the file below 1 or above `most_links`, or that none of the names ever existed."""
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


def name_repeatedly(call, path, name, stop):
    """Creates a file at `path` and gives it the name `name` with os.link or os.rename, as `call` says, repeatedly until
    the file `stop` exists. Returns the errors."""
    errors = collections.Counter()
    while not os.path.exists(stop):
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
    """Unlinks the name repeatedly for `seconds`, or until it has removed `times` files. Returns the number of removed
    files."""
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
    """Creates the names 0 to count - 1 by the call CLAIMS[how]. If another process has created a name first, that call
    fails, and this function opens the name.

    Before each call, the function creates its own file, which a rename or link then uses. Then it waits for a random
    time of up to 4 ms, so that a process that polls for this file is as often first as this one. Returns the number of
    names that other processes had created, and the errors.
    """
    errors, others = collections.Counter(), 0
    for number in range(count):
        own, name = f"{directory}/own{number}", f"{directory}/{number}"
        os.close(os.open(own, os.O_WRONLY | os.O_CREAT, 0o644))
        time.sleep(random.uniform(0, 0.004))
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
