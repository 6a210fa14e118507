# SPDX-License-Identifier: Apache-2.0
"""Lock operations, by flock(2) and by fcntl(2)."""

import errno
import fcntl
import os
import signal
import socket
import struct
import threading
import time


def try_flock(fd):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def wait_for_flock(fd, operation):
    """Calls flock(2); SIGUSR1 ends the wait. Returns 0 if it got the lock, else the errno (EINTR after the signal)."""
    def stop(_signal, _frame):
        raise InterruptedError(errno.EINTR, "signal")
    signal.signal(signal.SIGUSR1, stop)
    try:
        fcntl.flock(fd, operation)
    except OSError as error:
        return error.errno
    return 0


def flock_in_threads(path, count):
    """Locks and unlocks one file in `count` threads, once in each. Returns the largest number of threads that held the
    lock at the same time."""
    inside, most, guard = [0], [0], threading.Lock()

    def one():
        fd = os.open(path, os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        with guard:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        with guard:
            inside[0] -= 1
        os.close(fd)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return most[0]


def open_often(path, count):
    return [os.open(path, os.O_RDONLY) for _ in range(count)]


def flock_each(fds, operation):
    """Waits for a lock in one thread per descriptor; releases an exclusive lock immediately, and keeps a shared one.
    Returns the number of locks obtained."""
    had = []

    def one(fd):
        fcntl.flock(fd, operation)
        had.append(fd)
        if operation == fcntl.LOCK_EX:
            fcntl.flock(fd, fcntl.LOCK_UN)

    threads = [threading.Thread(target=one, args=(fd,)) for fd in fds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(had)


def lock_again_after_close(path, rounds, use_records=False):
    """Opens the file, locks it without waiting, and closes it, repeatedly.

    Returns the durations of the refused lock requests, in seconds.
    """
    refused = []
    for _ in range(rounds):
        fd = os.open(path, os.O_RDWR)
        asked = time.monotonic()
        try:
            (fcntl.lockf if use_records else fcntl.flock)(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refused.append(time.monotonic() - asked)
        os.close(fd)
    return refused


def share_flock(path, way):
    """Locks the file, duplicates or passes the descriptor as `way` says, and closes its own descriptor. Returns two
    booleans: whether the lock is free while the other descriptor is open, and whether it is free afterwards."""
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    held = []
    if way == "dup":
        other = os.dup(fd)
        os.close(fd)
        held.append(try_flock_path(path))
        os.close(other)
    else:
        here, there = socket.socketpair()
        child = os.fork()
        if child == 0:
            if way == "SCM_RIGHTS":
                os.close(fd)
                _, (fd,), _, _ = socket.recv_fds(there, 1, 1)
            there.send(b"r")
            there.recv(1)  # wait until the parent has tried the lock
            os._exit(0)
        if way == "SCM_RIGHTS":
            socket.send_fds(here, [b"f"], [fd])
        here.recv(1)
        os.close(fd)
        held.append(try_flock_path(path))
        here.send(b"e")
        os.waitpid(child, 0)
    held.append(try_flock_path(path))
    return held


def _try(path, flags, lock):
    fd = os.open(path, flags)
    try:
        lock(fd)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def try_flock_path(path, operation=fcntl.LOCK_EX):
    """Returns true if the file can be locked immediately; releases the lock."""
    return _try(path, os.O_RDONLY, lambda fd: fcntl.flock(fd, operation | fcntl.LOCK_NB))


def try_record(path, start=0, length=0, command=fcntl.F_SETLK, kind=fcntl.F_WRLCK):
    """Returns true if the range can be locked immediately; releases the lock."""
    return _try(path, os.O_RDWR, lambda fd: fcntl.fcntl(fd, command, _flock(kind, start, length)))


def set_record(fd, start=0, length=0, command=fcntl.F_SETLKW, kind=fcntl.F_WRLCK):
    fcntl.fcntl(fd, command, _flock(kind, start, length))


def find_record(path, start=0, length=0):
    """Calls F_GETLK: returns (type, start, length, pid) of the conflicting lock, or None."""
    fd = os.open(path, os.O_RDWR)
    try:
        found = fcntl.fcntl(fd, fcntl.F_GETLK, _flock(fcntl.F_WRLCK, start, length))
    finally:
        os.close(fd)
    kind, _, start, length, pid = struct.unpack(_FLOCK, found)
    return None if kind == fcntl.F_UNLCK else (kind, start, length, pid)


def lock_records_and_leave_them_to_a_child(path):
    """Takes a record lock on the whole file, forks a child that inherits the descriptor, and closes its own descriptor.
    Returns the child's pid."""
    fd = os.open(path, os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    child = os.fork()
    if child == 0:
        time.sleep(3600)
    os.close(fd)
    return child


def work_in_a_child(directory, how):
    """Starts a process that outlives this one, and returns its pid. If `how` is "file", the process creates a file in
    `directory` and keeps it open; otherwise, `directory` is its working directory. If `how` is "grandchild", the
    parent of the process has exited."""
    ready, told = os.pipe()
    if os.fork() == 0:
        if how == "grandchild" and os.fork() != 0:
            os._exit(0)
        os.setsid()
        if how == "file":
            os.open(os.path.join(directory, "object.o"), os.O_CREAT | os.O_WRONLY, 0o644)
        else:
            os.chdir(directory)
        for fd in (0, 1, 2):
            os.close(fd)
        os.write(told, struct.pack("<i", os.getpid()))
        while True:
            time.sleep(3600)
    return struct.unpack("<i", os.read(ready, 4))[0]


_FLOCK = "hhqqi4x"


def _flock(kind, start, length):
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0)
