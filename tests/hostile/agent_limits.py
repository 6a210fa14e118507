# SPDX-License-Identifier: Apache-2.0
"""Functions by which a process takes as many of the daemon's resources as it can (lib/agent.py). Descriptors stay open
until the process ends, or until release_all()."""

import errno
import fcntl
import os
import signal
import threading
import time

_held = []
_children = []


def _take(count, call):
    """Calls `call` up to `count` times. Returns the number of successes, and the name of the error that ended them."""
    for done in range(count):
        try:
            call(done)
        except OSError as error:
            return done, errno.errorcode[error.errno]
    return count, None


def open_many(path, count, flags=os.O_RDONLY):
    return _take(count, lambda _: _held.append(os.open(path, flags)))


def open_each(paths, flags=os.O_RDONLY):
    return _take(len(paths), lambda number: _held.append(os.open(paths[number], flags)))


def create_many(directory, count):
    return _take(count, lambda number: _held.append(
        os.open(f"{directory}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)))


def fill(path, mib, flags=os.O_CREAT | os.O_RDWR):
    """Writes `mib` MiB in pieces of 64 KiB. Returns the number of bytes that were written, and the name of the error
    that ended the writing; keeps the file open."""
    try:
        fd = os.open(path, flags, 0o644)
    except OSError as error:
        return 0, errno.errorcode[error.errno]
    _held.append(fd)
    piece = os.urandom(1 << 16)
    done = 0
    while done < mib << 20:
        try:
            done += os.write(fd, piece)
        except OSError as error:
            return done, errno.errorcode[error.errno]
    return done, None


def reserve(path, mib):
    """Like fill(), but allocates the blocks without writing them."""
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    _held.append(fd)
    done, error = _take(mib // 64, lambda number: os.posix_fallocate(fd, number << 26, 1 << 26))
    return done << 26, error


def stat_each(paths):
    """Stats each file, and repeats the call as long as it fails with ENFILE. Returns the number of failed calls."""
    failed = 0
    for path in paths:
        while True:
            try:
                os.stat(path)
                break
            except OSError as error:
                if error.errno != errno.ENFILE:
                    raise
                failed += 1
                time.sleep(0.01)
    return failed


def release_all():
    """Closes what this process holds, and ends its children."""
    while _held:
        os.close(_held.pop())
    while _children:
        child = _children.pop()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def remove_in_use(directory, count):
    """Creates and removes files, but keeps an O_PATH descriptor of each. An open with O_PATH sends no OPEN request."""
    def remove(number):
        path = f"{directory}/{number}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        _held.append(os.open(path, os.O_PATH))
        os.unlink(path)
    return _take(count, remove)


def lock_ranges(path, count):
    """Takes record locks on every second byte."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    _held.append(fd)
    return _take(count, lambda number: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * number))


def split_lock(path, count):
    """Takes one record lock, and releases every second byte of it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    _held.append(fd)
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 2 * count + 2, 0)
    return _take(count, lambda number: fcntl.lockf(fd, fcntl.LOCK_UN, 1, 2 * number + 1))


def unlock_last():
    fcntl.lockf(_held[-1], fcntl.LOCK_UN)


def relock_last():
    fcntl.lockf(_held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def ask_for_locks_in_children(path, count):
    """Makes an F_GETLK request in each of `count` processes on one open file: each process is a separate lock owner.
    Returns the number of requests that fail."""
    fd = os.open(path, os.O_RDONLY)  # read-only, so that the kernel sends no FLUSH when it is closed
    _held.append(fd)
    request = b"\1\0" + b"\0" * 30  # struct flock of F_WRLCK
    ready, done = os.pipe()
    refused = 0
    for _ in range(count):
        child = os.fork()
        if child == 0:
            try:
                fcntl.fcntl(fd, fcntl.F_GETLK, request)
                os.write(done, b"+")
            except OSError:
                os.write(done, b"-")
            while True:
                signal.pause()
        _children.append(child)
        refused += os.read(ready, 1) == b"-"
    return refused


def _begin(entry, done):
    os.mkdir(entry)
    os.path.exists(f"{entry}/__grp__kernel.json")
    os.write(done, b"x")
    while True:
        signal.pause()


def begin_entries(directory, processes, threads):
    """Starts processes with `threads` threads each. Each thread creates an entry's directory and looks up a name in it,
    which gives the process the lease."""
    for process in range(processes):
        ready, done = os.pipe()
        child = os.fork()
        if child == 0:
            for thread in range(threads):
                entry = f"{directory}/{process}-{thread}"
                threading.Thread(target=_begin, args=(entry, done), daemon=True).start()
            while True:
                signal.pause()
        _children.append(child)
        for _ in range(threads):
            os.read(ready, 1)
        os.close(ready)
        os.close(done)


def wait_for_locks(path, count):
    """Waits for an exclusive lock in `count` threads. Returns the errors of the threads that fail within a second."""
    errors = []

    def wait():
        try:
            fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX)
        except OSError as error:
            errors.append(errno.errorcode[error.errno])

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1 / count)
    return errors


def request_many(control, text, count):
    """Sends requests, and keeps the control files open without reading the replies."""
    def request(_):
        fd = os.open(control, os.O_RDWR)
        _held.append(fd)
        os.write(fd, text)
    return _take(count, request)


def _ask(control, text):
    fd = os.open(control, os.O_RDWR)
    os.write(fd, text)
    answer = os.read(fd, 1 << 16)
    os.close(fd)
    return b'"ok"' in answer


def start_and_end_jobs(mount, name, count):
    """Starts and ends jobs, one after the other, and looks up a file in the view of each. Stops after `count` jobs, or
    when the daemon refuses one. Returns how many jobs began."""
    control = f"{mount}/.cacheshim/control"
    for number in range(count):
        job = f"{name}{number}"
        if not _ask(control, b'{"op":"job-start","job":"%s"}' % job.encode()):
            return number
        os.stat(f"{mount}/.jobs/{job}/triton/f")
        _ask(control, b'{"op":"job-end","job":"%s","outcome":"success"}' % job.encode())
    return count


def start_jobs(control, count):
    """Starts `count` jobs; returns how many of them began."""
    begun = 0
    for number in range(count):
        begun += _ask(control, b'{"op":"job-start","job":"h%d"}' % number)
    return begun
