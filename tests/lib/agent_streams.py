# SPDX-License-Identifier: Apache-2.0
"""Directory streams of libc, with the calls that a C program makes."""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
for _name in ("opendir", "readdir", "readdir64"):
    getattr(_libc, _name).restype = ctypes.c_void_p
_libc.telldir.restype = ctypes.c_long

_streams = []


class _Entry(ctypes.Structure):
    _fields_ = [("inode", ctypes.c_uint64), ("place", ctypes.c_int64), ("length", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]


def _failed(what):
    return OSError(ctypes.get_errno(), what)


def _shown(address):
    entry = _Entry.from_address(address)
    return entry.name.decode(), entry.inode, entry.type


def open_stream(path):
    """Opens a stream; returns its number, which the other functions take."""
    stream = _libc.opendir(path.encode())
    if stream is None:
        raise _failed("opendir")
    _streams.append(ctypes.c_void_p(stream))
    return len(_streams) - 1


def read_stream(number, most=None, call="readdir"):
    """Returns up to `most` entries, or all remaining ones, as (name, inode, type)."""
    entries = []
    while most is None or len(entries) < most:
        ctypes.set_errno(0)
        entry = getattr(_libc, call)(_streams[number])
        if entry is None:
            if ctypes.get_errno() != 0:
                raise _failed(call)
            break
        entries.append(_shown(entry))
    return entries


def read_stream_into(number, call="readdir_r"):
    """Returns all remaining entries, read by readdir_r or readdir64_r, which take a buffer."""
    entries, room, result = [], _Entry(), ctypes.c_void_p()
    while True:
        error = getattr(_libc, call)(_streams[number], ctypes.byref(room), ctypes.byref(result))
        if error != 0:
            raise OSError(error, call)
        if not result.value:
            return entries
        entries.append(_shown(result.value))


def names_of_stream(number, most=None):
    return sorted(name for name, _, _ in read_stream(number, most))


def rewind_stream(number):
    _libc.rewinddir(_streams[number])


def seek_stream(number, place):
    _libc.seekdir(_streams[number], ctypes.c_long(place))


def tell_stream(number):
    return _libc.telldir(_streams[number])


def stream_descriptor(number):
    return _libc.dirfd(_streams[number])


def close_stream(number):
    if _libc.closedir(_streams[number]) != 0:
        raise _failed("closedir")


def list_stream(path, call="readdir"):
    """Returns all entries of a directory, sorted."""
    number = open_stream(path)
    read = read_stream_into if call.endswith("_r") else read_stream
    entries = read(number, call=call)
    close_stream(number)
    return sorted(entries)


_FILTER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def scan(path, call="scandir", without=""):
    """Returns all entries that scandir(3) returns, except the name `without`, sorted."""
    keep = _FILTER(lambda entry: _shown(entry)[0] != without) if without else None
    found = ctypes.POINTER(ctypes.c_void_p)()
    first = (ctypes.c_int(-100),) if call.startswith("scandirat") else ()
    count = getattr(_libc, call)(*first, path.encode(), ctypes.byref(found), keep, _libc.alphasort)
    if count < 0:
        raise _failed(call)
    entries = [_shown(found[i]) for i in range(count)]
    for i in range(count):
        _libc.free(ctypes.c_void_p(found[i]))
    _libc.free(found)
    return sorted(entries)


def told(call, *arguments):
    """Calls the function `call` of this module; returns its result, or the errno of its error."""
    try:
        return globals()[call](*arguments)
    except OSError as error:
        return error.errno


def scan_with_status(path):
    """Returns for each entry what os.scandir() and its DirEntry report."""
    with os.scandir(path) as entries:
        return sorted((entry.name, entry.inode(), entry.is_dir(), entry.is_file(), entry.is_symlink(),
                       entry.stat(follow_symlinks=False).st_ino) for entry in entries)


def change_below(fd):
    """Creates, renames, links and removes names relative to a directory's descriptor."""
    os.mkdir("made", dir_fd=fd)
    os.close(os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.rename("file", "renamed", src_dir_fd=fd, dst_dir_fd=fd)
    os.link("renamed", "linked", src_dir_fd=fd, dst_dir_fd=fd)
    os.symlink("linked", "link", dir_fd=fd)
    os.unlink("sub/deep", dir_fd=fd)
    os.rmdir("sub", dir_fd=fd)


def read_in_a_fork(number):
    """Returns the names that a forked child reads from a stream. The child closes the stream; the parent keeps it
    open."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "\n".join(names_of_stream(number)).encode())
        close_stream(number)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        names = pipe.read().split("\n")
    assert os.waitpid(child, 0)[1] == 0
    return names


def open_numbers():
    return sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}"))
