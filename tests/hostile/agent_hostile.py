# SPDX-License-Identifier: Apache-2.0
"""Functions that a malicious process of a job calls (lib/agent.py)."""

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import struct
import threading
import time

held = []  # the control files of the requests that hold_requests() has sent


def send_requests(control, count, text):
    """Sends `count` requests. Opens the control file for each one, and closes it without reading the reply."""
    for _ in range(count):
        fd = os.open(control, os.O_RDWR)
        with contextlib.suppress(OSError):
            os.write(fd, text)
        os.close(fd)


def ask(control, text):
    """Sends a request; returns the last line of the reply."""
    fd = os.open(control, os.O_RDWR)
    try:
        os.write(fd, text)
        answer = b""
        while chunk := os.read(fd, 1 << 16):
            answer += chunk
    finally:
        os.close(fd)
    return answer.splitlines()[-1]


def hold_requests(control, count, text):
    """Sends `count` requests, and keeps their control files open."""
    for _ in range(count):
        fd = os.open(control, os.O_RDWR)
        os.write(fd, text)
        held.append(fd)


def count_answers():
    """Returns how many of the held requests have been answered. Each read returns within 200 ms, with the answer or a
    line of progress."""
    return sum(b'"progress"' not in os.read(fd, 1 << 16) for fd in held)


def close_requests():
    for fd in held:
        os.close(fd)
    held.clear()


def make_hole(path, size):
    with open(path, "wb") as file:
        file.truncate(size)


def write_at(path, offset, data):
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, data, offset)
    os.close(fd)


def complete_entry(directory, count):
    """Completes an entry of Triton for which publish_holes() has created `count` files: writes the group file in a
    temporary directory and renames it into the entry, as Triton does."""
    children = {f"k{number}.cubin": f"{directory}/k{number}.cubin" for number in range(count)}
    os.mkdir(f"{directory}/tmp.pid_1")
    with open(f"{directory}/tmp.pid_1/file", "w", encoding="utf-8") as file:
        json.dump({"child_paths": children}, file)
    os.rename(f"{directory}/tmp.pid_1/file", f"{directory}/__grp__k.json")
    os.rmdir(f"{directory}/tmp.pid_1")


def publish_holes(cache, key, count, size, complete=True):
    """Creates an entry of Triton with `count` files, each of which is a hole of `size` bytes. If `complete` is true,
    also completes the entry, and returns when it is published."""
    directory = f"{cache}/{key}"
    os.makedirs(directory)
    for number in range(count):
        make_hole(f"{directory}/tmp.pid_2", size)
        os.rename(f"{directory}/tmp.pid_2", f"{directory}/k{number}.cubin")
    if complete:
        complete_entry(directory, count)


def make_deep(top, most, names=("d",)):
    """Creates nested directories, which take their names from `names` in turn, until there are `most` or a call fails.
    Returns their number."""
    before = os.getcwd()
    os.chdir(top)
    depth = 0
    try:
        while depth < most:
            os.mkdir(names[depth % len(names)])
            os.chdir(names[depth % len(names)])
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


class Buffer:
    """A mapping of a file on a FUSE file system whose server, a child of this process, never answers a read. A system
    call that copies data to or from the mapping hangs until end().

    The constructor moves this process to new user and mount namespaces, in which an ordinary user can mount."""

    PAGE = 4096
    PAGES = 16
    _HEADER = struct.Struct("<IIQQIIII")
    _FILE = 2  # the node of the only file
    _READ = 15  # the opcode
    _CLONE_NEWUSER, _CLONE_NEWNS, _PR_SET_PDEATHSIG, _MAP_FIXED = 0x10000000, 0x20000, 1, 0x10

    def __init__(self, mount_point="/mnt", fails_first=False):
        """If `fails_first` is true, the server answers the first read of each page with EIO; only later reads hang."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                    ctypes.c_int, ctypes.c_long]
        self._enter_namespaces()
        device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
        self._check(self._libc.mount(b"buffer", mount_point.encode(), b"fuse", 0, options))
        self._hangs = os.pipe()  # a byte for each read that hangs
        self._server = os.fork()
        if self._server == 0:
            self._libc.prctl(self._PR_SET_PDEATHSIG, signal.SIGKILL)
            try:
                self._serve(device, fails_first)
            finally:
                os._exit(0)
        os.close(device)
        file = os.open(f"{mount_point}/buffer", os.O_RDWR)
        # The page before the mapping contains the parts of arguments that the kernel must be able to read.
        readable = mmap.PROT_READ | mmap.PROT_WRITE
        before = self._libc.mmap(None, self.PAGE * (self.PAGES + 1), readable,
                                 mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        self._start = self._libc.mmap(before + self.PAGE, self.PAGE * self.PAGES, readable,
                                      mmap.MAP_PRIVATE | self._MAP_FIXED, file, 0)
        os.close(file)
        self._threads = []

    def list_into(self, directory):
        """Starts a thread that lists the directory into the mapping, and returns once it hangs."""
        page = ctypes.c_void_p(self._start + self.PAGE * len(self._threads))
        getdents64 = {"x86_64": 217, "aarch64": 61}[os.uname().machine]
        self._hang_in(getdents64, directory, page, self.PAGE)

    def map_extents_into(self, file):
        """Starts a thread that gets the extents of the file (FIEMAP), and returns once it hangs. The thread uses the
        first page of the mapping, so it must be the buffer's first thread. Raises OSError if the file system has no
        FIEMAP."""
        request = struct.pack("<QQIIII", 0, 1 << 40, 0, 0, 16, 0)  # struct fiemap, without the extents
        header = self._start - len(request)
        ctypes.memmove(header, request, len(request))
        ioctl = {"x86_64": 16, "aarch64": 29}[os.uname().machine]
        self._hang_in(ioctl, file, ctypes.c_ulong(0xc020660b), ctypes.c_void_p(header))

    def _hang_in(self, call, *args):
        tid = []

        def hang():
            tid.append(threading.get_native_id())
            self._libc.syscall(call, *args)

        thread = threading.Thread(target=hang, daemon=True)
        self._threads.append(thread)
        thread.start()
        while not tid or not self._call_of(tid[0]).startswith(f"{call} "):
            if not thread.is_alive():
                raise OSError(errno.EOPNOTSUPP, "the call does not hang")
            time.sleep(0.001)

    def access_with_locked_map(self, path, page):
        """Starts a process that calls access(2) for the path while one of its threads holds the process's mmap lock:

        1. The first thread faults on the page `page`. The first read of the page fails, and the kernel retries the
           fault. The second read hangs, and now the thread holds the mmap lock for reading.
        2. The second thread calls mmap(2), and waits for the mmap lock for writing.
        3. Every later reader of the memory map waits behind the second thread.

        Between these steps the threads make only system calls, because any other change to the memory map would also
        wait."""
        mmap = {"x86_64": 9, "aarch64": 222}[os.uname().machine]
        private_anonymous, set_dumpable = 0x22, 4
        ready, fault, change, access, sink = (os.pipe() for _ in range(5))
        if os.fork() == 0:
            self._libc.prctl(set_dumpable, 1)  # so that the parent may read its /proc/PID/syscall
            byte = ctypes.create_string_buffer(1)

            def wait_and_fault():
                self._libc.read(fault[0], byte, 1)
                self._libc.write(sink[1], ctypes.c_void_p(self._start + self.PAGE * page), 1)

            def wait_and_change():
                os.write(ready[1], struct.pack("<I", threading.get_native_id()))
                self._libc.read(change[0], byte, 1)
                self._libc.mmap(None, self.PAGE, 0, private_anonymous, -1, 0)

            for call in (wait_and_fault, wait_and_change):
                threading.Thread(target=call, daemon=True).start()
            self._libc.read(access[0], byte, 1)
            self._libc.access(path, 0)
            os._exit(0)
        changer = struct.unpack("<I", os.read(ready[0], 4))[0]
        os.write(fault[1], b"x")
        os.read(self._hangs[0], 1)
        os.write(change[1], b"x")
        while not self._call_of(changer).startswith(f"{mmap} "):
            time.sleep(0.001)
        os.write(access[1], b"x")

    def end(self):
        """Ends the server. Then the calls of the threads return, because their buffers have become bad addresses."""
        os.kill(self._server, signal.SIGKILL)
        os.waitpid(self._server, 0)
        for thread in self._threads:
            thread.join()

    def _call_of(self, tid):
        with open(f"/proc/{tid}/syscall", encoding="utf-8") as file:
            return file.read()

    def _check(self, result):
        if result != 0:
            raise OSError(ctypes.get_errno(), "cannot mount in a user namespace")

    def _enter_namespaces(self):
        uid, gid = os.getuid(), os.getgid()
        self._check(self._libc.unshare(self._CLONE_NEWUSER | self._CLONE_NEWNS))
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
                file.write(text)

    def _serve(self, device, fails_first):
        size = self.PAGE * self.PAGES
        failed = set()

        def attributes(node):
            mode = 0o100600 if node == self._FILE else 0o40700
            return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, self.PAGE, 0)

        long = struct.pack("<QII", 1000, 0, 0)  # the timeout of attributes
        # FUSE_ASYNC_READ (1): a signal ends the wait for the data.
        init = struct.pack("<4I2H2I", 7, 31, 0, 1, 16, 12, size, 1).ljust(64, b"\0")
        while True:
            try:
                request = os.read(device, 1 << 17)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return
            _, opcode, unique, node, *_ = self._HEADER.unpack_from(request)
            entry = struct.pack("<4Q2I", self._FILE, 0, 1000, 1000, 0, 0) + attributes(self._FILE)
            answers = {1: entry, 3: long + attributes(node), 14: struct.pack("<QII", 1, 0, 0), 18: b"", 25: b"",
                       26: init}  # LOOKUP, GETATTR, OPEN, RELEASE, FLUSH, INIT
            if opcode == self._READ:
                offset = struct.unpack_from("<Q", request, self._HEADER.size + 8)[0]
                if fails_first and offset not in failed:
                    failed.add(offset)
                    os.write(device, struct.pack("<IiQ", 16, -errno.EIO, unique))
                else:
                    os.write(self._hangs[1], b"x")
            if opcode in (2, self._READ, 36, 42):  # FORGET, INTERRUPT and BATCH_FORGET have no answer; READ gets none
                continue
            body = answers.get(opcode)
            code = -errno.ENOSYS if body is None else 0
            os.write(device, struct.pack("<IiQ", 16 + len(body or b""), code, unique) + (body or b""))


_buffers = []


def hang_in_listings(directories):
    """Lists each directory in a thread, which hangs while the kernel holds the lock of the directory."""
    opened = [os.open(directory, os.O_RDONLY | os.O_DIRECTORY) for directory in directories]
    if not _buffers:
        _buffers.append(Buffer())
    for directory in opened:
        _buffers[0].list_into(directory)


def hang_in_extents(path):
    """Gets the extents of the file in a thread, which hangs while the kernel holds the lock of the file."""
    file = os.open(path, os.O_RDONLY)
    if not _buffers:
        _buffers.append(Buffer())
    _buffers[0].map_extents_into(file)


def access_with_locked_maps(path, count):
    """Starts `count` processes with locked memory maps, which call access(2) for the path."""
    _buffers.append(Buffer(fails_first=True))
    for page in range(count):
        _buffers[0].access_with_locked_map(os.fsencode(path), page)


def end_buffer():
    """Ends all calls that hang in the buffer."""
    _buffers.pop().end()


def remove_one_of_two_names(directory):
    """Creates a file with two names in the directory, and removes one of them."""
    with open(f"{directory}/one", "w", encoding="utf-8") as file:
        os.link(file.name, f"{directory}/two")
    os.unlink(f"{directory}/one")


def ask_for_attributes(path):
    """Makes the kernel send a GETATTR, regardless of what it has cached."""
    at_fdcwd, at_statx_force_sync, statx_basic_stats = -100, 0x2000, 0x7ff
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statx(at_fdcwd, os.fsencode(path), at_statx_force_sync, statx_basic_stats,
                  ctypes.create_string_buffer(256)) != 0:
        raise OSError(ctypes.get_errno(), path)


def change_attributes(path, times):
    """Changes the mode and an xattr of a file repeatedly, so that some changes happen while the daemon publishes the
    file."""
    for number in range(times):
        for call in (lambda: os.chmod(path, 0o6777), lambda: os.setxattr(path, "user.note", b"%d" % number),
                     lambda: os.chmod(path, 0o644)):
            with contextlib.suppress(OSError):
                call()


def error_in_the_deepest(top, depth):
    """Tries to create a directory below `depth` nested directories; returns the errno, or 0 on success."""
    before = os.getcwd()
    os.chdir(top)
    for _ in range(depth):
        os.chdir("d")
    try:
        os.mkdir("d")
    except OSError as error:
        return error.errno
    finally:
        os.chdir(before)
    return 0


def link_names(top, begin, count):
    """Creates `count` empty files whose names are consecutive numbers, starting at `begin`."""
    for number in range(begin, begin + count):
        os.close(os.open(f"{top}/{number}", os.O_CREAT | os.O_WRONLY, 0o644))


def make_and_remove_batons(top, begin, count):
    """Creates `count` batons, each in a new directory with a long name, and removes each baton and its directory."""
    for number in range(begin, begin + count):
        directory = top + b"/" + b"%d" % number + b"n" * 200
        os.mkdir(directory)
        os.close(os.open(directory + b"/lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.unlink(directory + b"/lock")
        os.rmdir(directory)
