# SPDX-License-Identifier: Apache-2.0
"""Operations of a job's process on files and directories, one function each."""

import ctypes
import errno
import hashlib
import mmap
import os
import shutil
import socket
import stat
import struct


def write_file(path, data, mode=0o644, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    fd = os.open(path, flags, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view):]
    finally:
        os.close(fd)


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def _told(call, *args):
    """Returns the call's result, or the name of its error."""
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode[error.errno]


def _attributes(status):
    return {"mode": oct(status.st_mode), "ino": status.st_ino, "dev": status.st_dev,
            "nlink": status.st_nlink, "uid": status.st_uid, "gid": status.st_gid,
            "size": status.st_size, "mtime": status.st_mtime_ns}


def look(path):
    """Returns what stat, lstat, open, access, readlink and listdir report about a path."""
    def opened():
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            status = _attributes(os.fstat(fd))
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return "no file", status["ino"], status["dev"]
            return os.read(fd, 65536), status
        finally:
            os.close(fd)

    return {"stat": _told(lambda: _attributes(os.stat(path))),
            "lstat": _told(lambda: _attributes(os.lstat(path))),
            "open": _told(opened),
            "access": (os.access(path, os.F_OK), os.access(path, os.R_OK)),
            "readlink": _told(os.readlink, path),
            "listdir": _told(lambda: sorted(os.listdir(path)))}


def change(kind, path, other, data):
    """Performs the change `kind` on `path` or on both names; returns its result, or the name of its error."""
    def write():
        write_file(path, data)

    def append():
        write_file(path, data, flags=os.O_WRONLY | os.O_APPEND)

    def replace():
        write_file(f"{path}.tmp.pid_1", data)
        os.replace(f"{path}.tmp.pid_1", path)

    ways = {"write": write, "append": append, "replace": replace,
            "unlink": lambda: os.unlink(path), "mkdir": lambda: os.mkdir(path),
            "rmdir": lambda: os.rmdir(path), "rename": lambda: os.rename(path, other),
            "symlink": lambda: os.symlink("x", path), "link": lambda: os.link(path, other),
            "chmod": lambda: os.chmod(path, 0o600 if len(data) % 2 else 0o755),
            "utime": lambda: os.utime(path, (1, len(data))),
            "truncate": lambda: os.truncate(path, 3), "rmtree": lambda: shutil.rmtree(path)}
    return _told(ways[kind])


def fill_directory(top, count):
    for number in range(count):
        os.mkdir(f"{top}/{number}")


def fill_files(top, count):
    for number in range(count):
        write_file(f"{top}/{number}", b"data")


MAPPED = []


def write_and_keep_mapped(path, data):
    """Writes a file, maps it through a second descriptor, and closes both descriptors."""
    writer = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(writer, data)
    both = os.open(path, os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)  # Python's mmap keeps its own descriptor
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                          ctypes.c_int, ctypes.c_long]
    address = libc.mmap(None, len(data), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, both, 0)
    assert address not in (None, ctypes.c_void_p(-1).value), ctypes.get_errno()
    MAPPED.append((libc, address, len(data)))
    os.close(both)
    os.close(writer)


def unmap():
    libc, address, length = MAPPED.pop()
    ctypes.memmove(address, b"mapped", 6)
    assert libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(length)) == 0


def change_removed(top):
    """Changes removed files and a removed directory through their descriptors; returns what the descriptors show."""
    file = os.open(os.path.join(top, "file"), os.O_RDONLY)
    directory = os.open(os.path.join(top, "directory"), os.O_RDONLY)
    replaced = os.open(os.path.join(top, "replaced"), os.O_RDONLY)
    os.unlink(os.path.join(top, "file"))
    os.rmdir(os.path.join(top, "directory"))
    write_file(os.path.join(top, "new"), b"new")
    os.rename(os.path.join(top, "new"), os.path.join(top, "replaced"))
    os.fchmod(file, 0o600)
    os.setxattr(file, "user.x", b"mine")
    writer = os.open(f"/proc/self/fd/{file}", os.O_RDWR)
    os.pwrite(writer, b"CHANGED", 0)
    os.utime(file, (1, 1))
    os.fchmod(directory, 0o700)
    os.truncate(f"/proc/self/fd/{replaced}", 11)
    other = os.open(f"/proc/self/fd/{replaced}", os.O_WRONLY)
    os.pwrite(other, b"HI", 0)
    status = os.fstat(file)
    return {"mode": status.st_mode & 0o7777, "mtime": int(status.st_mtime),
            "xattr": os.getxattr(file, "user.x"), "content": os.pread(file, 100, 0),
            "other": os.pread(writer, 100, 0), "nlink": status.st_nlink,
            "directory_mode": os.fstat(directory).st_mode & 0o7777,
            "replaced": os.pread(replaced, 100, 0)}


def owners(paths):
    return [os.stat(path).st_uid for path in paths]


def digest(path):
    return hashlib.sha256(read_file(path)).hexdigest()


def tree(top):
    """Returns a value for every path below `top`: a file's bytes, a link's target, None for a directory."""
    found = {}
    for directory, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(directory, name)
            short = os.path.relpath(path, top)
            if os.path.islink(path):
                found[short] = os.readlink(path)
            elif os.path.isdir(path):
                found[short] = None
            else:
                found[short] = read_file(path)
    return found


def removedirs_error(path):
    """Removes directories as os.removedirs() does: returns [(path, errno)], up to the first error."""
    met = []
    while True:
        try:
            os.rmdir(path)
            met.append((path, 0))
        except OSError as error:
            met.append((path, error.errno))
            return met
        path = os.path.dirname(path)


_open_files = {}


def hold(path, flags=os.O_RDONLY, mode=0o644):
    """Opens a file and keeps it open until release(); returns its descriptor."""
    fd = os.open(path, flags, mode)
    _open_files[fd] = path
    return fd


def release(fd):
    del _open_files[fd]
    os.close(fd)


def stat_into_nowhere(file):
    """Calls libc's stat, or fstat for a descriptor, with an invalid buffer address. Returns (result, errno)."""
    libc = ctypes.CDLL(None, use_errno=True)
    call, name = (libc.fstat, file) if isinstance(file, int) else (libc.stat, file.encode())
    return call(name, ctypes.c_void_p(1)), ctypes.get_errno()


def call_libc(name, *args):
    """Calls a libc function. `args` may contain integers, bytes and None (a null pointer). Returns the result; raises
    OSError if the result is -1."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = getattr(libc, name)(*(ctypes.c_long(one) if isinstance(one, int) else one for one in args))
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def told_by_libc(size, name, *args):
    """Calls a libc function as call_libc() does, but passes a buffer of `size` bytes in place of the argument "out".
    Returns the buffer's bytes."""
    out = ctypes.create_string_buffer(size)
    call_libc(name, *(out if one == "out" else one for one in args))
    return out.raw


def map_and_read(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as region:
        return bytes(region)


def bind_socket(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)


def fill(path, chunk, most):
    """Writes `most` bytes, or fewer if a call fails. Returns (bytes written, errno of the failed call or 0)."""
    written = 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        try:
            while written < most:
                written += os.write(fd, b"x" * chunk)
            os.fsync(fd)
        except OSError as error:
            return written, error.errno
    finally:
        try:
            os.close(fd)
        except OSError as error:
            return written, error.errno
    return written, 0


def _renameat2(one, two, flags):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, one.encode(), -100, two.encode(), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def rename_noreplace(one, two):
    _renameat2(one, two, 1)


def exchange_repeatedly(one, two, times):
    """Exchanges two names `times` times with renameat2(RENAME_EXCHANGE)."""
    for _ in range(times):
        _renameat2(one, two, 2)


def work_below_repeatedly(directory, times):
    """Reads, writes, creates and removes files below `directory`; returns the contents that it has read."""
    seen = set()
    for number in range(times):
        for call in (lambda: seen.add(read_file(f"{directory}/file")),
                     lambda: write_file(f"{directory}/file", b"new"),
                     lambda: write_file(f"{directory}/made", b"made"),
                     lambda: os.mkdir(f"{directory}/directory{number}"),
                     lambda: os.chmod(f"{directory}/file", 0o644),
                     lambda: os.unlink(f"{directory}/made")):
            try:
                call()
            except (PermissionError, FileNotFoundError, NotADirectoryError):
                pass  # `directory` was the symlink at that moment, or the file was absent
    return {bytes(data) for data in seen if data}


def hide_environment():
    """Overwrites this process's environment, as programs that store their process title there do. /proc/PID/environ
    then no longer shows the variables."""
    fields = open("/proc/self/stat", encoding="utf-8").read().rpartition(")")[2].split()
    begin, end = int(fields[47]), int(fields[48])
    ctypes.memset(begin, 0, end - begin)


def statx_of(path, flags):
    """Returns the attributes that statx(2) reports: kind, mode, owner, size, links, inode number and times."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = ctypes.create_string_buffer(256)
    if libc.statx(-100, path.encode(), flags | 0x100, 0x7ff, found) != 0:  # AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS
        raise OSError(ctypes.get_errno(), "statx", path)
    links, uid, gid, mode, ino, size = struct.unpack_from("=IIIHxxQQ", found, 16)
    changed, changed_ns, _, written, written_ns = struct.unpack_from("=qIiqI", found, 96)
    return {"mode": oct(mode), "uid": uid, "gid": gid, "links": links, "ino": ino, "size": size,
            "ctime": changed * 10**9 + changed_ns, "mtime": written * 10**9 + written_ns}


def compare_attributes(top):
    """Returns the attributes that the kernel has cached although the file system now has others:
    {path: {attribute: (cached, now)}}, for `top` and everything below it."""
    at_statx_force_sync = 0x2000
    paths = [top] + [os.path.join(directory, name) for directory, directories, files in os.walk(top)
                     for name in directories + files]
    cached = {path: statx_of(path, 0) for path in paths}
    now = {path: statx_of(path, at_statx_force_sync) for path in paths}
    return {path: {name: (cached[path][name], value) for name, value in now[path].items()
                   if cached[path][name] != value}
            for path in paths if cached[path] != now[path]}
