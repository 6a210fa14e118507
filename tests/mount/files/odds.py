# SPDX-License-Identifier: Apache-2.0
"""Unusual parts of POSIX: `odds.py NAME DIRECTORY` performs one of them and prints the results.

It runs as any user, in a plain directory and in a view, and must print the same in both. So it prints nothing that
depends on the directory's path, on inode numbers, times or the order of a listing.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import stat
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400


def attempt(what, call, *args, **options):
    """Makes a call, and returns its value, or None if it failed. Prints `what` and the result: the errno, or "ok", or
    the value if `what` ends with "?"."""
    try:
        value = call(*args, **options)
    except OSError as error:
        print(what, errno.errorcode[error.errno])
        return None
    print(what, value if isinstance(value, (int, bytes, str, list)) and what[-1] == "?" else "ok")
    return value


def mode_of(path, **options):
    return stat.filemode(os.stat(path, follow_symlinks=False, **options).st_mode)


def write(path, data=b"data"):
    with open(path, "wb") as file:
        file.write(data)


def prepare(_):
    """Creates the files that the other functions expect, in the base or in the job's layer."""
    os.mkdir("watched")
    for name in ("changed", "moved", "moved-out", "removed"):
        write(f"watched/{name}")
    os.mkdir("watched/sub")
    os.mkdir("outside")
    os.mkdir("held")
    write("held/file", b"0123456789" * 1000)
    write("held/other", b"other")
    os.mkdir("held/directory")
    os.mkdir("linked")
    for name in ("written", "cut", "timed", "removed", "linked", "mapped", "replaced"):
        write(f"linked/{name}", b"of two names")
        os.link(f"linked/{name}", f"linked/{name}2")
    os.makedirs("removed/cwd")
    write("log", b"")
    os.mkdir("shared")


def prepare_listing(_):
    os.mkdir("many")
    for number in range(400):
        write(f"many/file{number:03}{'x' * 120}")  # with long names, so that one getdents call cannot fetch all of them


class DirEntry(ctypes.Structure):
    _fields_ = [("number", ctypes.c_ulong), ("offset", ctypes.c_long), ("length", ctypes.c_ushort),
                ("kind", ctypes.c_ubyte), ("name", ctypes.c_char * 256)]


libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(DirEntry)
libc.readdir.argtypes = libc.rewinddir.argtypes = libc.closedir.argtypes = [ctypes.c_void_p]
libc.telldir.argtypes, libc.telldir.restype = [ctypes.c_void_p], ctypes.c_long
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


def read_names(stream, most=1 << 30):
    names = []
    while len(names) < most and (entry := libc.readdir(stream)):
        names.append(entry.contents.name.decode())
    return names


def listing_positions(_):
    """After seekdir to any position that telldir has returned, readdir returns the same names as the first time."""
    stream = libc.opendir(b"many")
    places = []
    while True:
        place = libc.telldir(stream)
        if not (names := read_names(stream, 23)):
            break
        places.append((place, names))
    print("names", len([name for _, names in places for name in names]))
    for place, names in [*reversed(places), *places[::3]]:
        libc.seekdir(stream, place)
        if read_names(stream, 23) != names:
            print("another name after seekdir")
    libc.rewinddir(stream)
    print("after rewinddir", sorted(read_names(stream)) == sorted(os.listdir("many") + [".", ".."]))
    libc.closedir(stream)


def listing_under_change(_):
    """Names that are neither created nor removed meanwhile are listed exactly once, before and after a seekdir."""
    stream = libc.opendir(b"many")
    first = read_names(stream, 100)
    place = libc.telldir(stream)
    ahead = sorted(set(os.listdir("many")) - set(first))
    for name in first[10:40] + ahead[::4]:
        if name not in (".", ".."):
            os.unlink(f"many/{name}")
    for number in range(200):
        write(f"many/new{number}")
    os.rename(f"many/{ahead[1]}", "many/renamed")
    stay = {name for name in os.listdir("many") if name.startswith("file")}
    rest = read_names(stream)
    libc.seekdir(stream, place)
    again = read_names(stream)
    for which, names in (("at first", first + rest), ("after seekdir", first + again)):
        lost = stay - set(names)
        print(which, "lost", sorted(lost), "twice", len(names) != len(set(names)))
    libc.rewinddir(stream)
    print("after rewinddir", sorted(read_names(stream)) == sorted(os.listdir("many") + [".", ".."]))
    libc.closedir(stream)
    print(sorted(os.listdir("many")) == sorted(stay | {"renamed"} |
                                               {f"new{number}" for number in range(200)}))


INOTIFY_MASKS = {0x1: "access", 0x2: "modify", 0x4: "attrib", 0x8: "close-write", 0x10: "close",
                 0x20: "open", 0x40: "moved-from", 0x80: "moved-to", 0x100: "create",
                 0x200: "delete", 0x400: "delete-self", 0x800: "move-self", 0x8000: "ignored",
                 0x2000: "unmount", 0x4000: "overflow"}
INOTIFY_ISDIR = 0x40000000


def inotify_events(fd):
    """Returns the available events as text. Cookies are replaced by numbers in the order of their first events."""
    try:
        data, cookies, events = os.read(fd, 1 << 20), {0: ""}, []
    except BlockingIOError:
        return []
    while data:
        watch, mask, cookie, length = struct.unpack_from("iIII", data)
        name = data[16:16 + length].rstrip(b"\0").decode()
        words = [word for bit, word in INOTIFY_MASKS.items() if mask & bit]
        is_directory = "directory" if mask & INOTIFY_ISDIR else ""
        events.append(f"{watch} {'+'.join(words)} {name} {cookies.setdefault(cookie, len(cookies))} "
                      f"{is_directory}")
        data = data[16 + length:]
    return events


def inotify_events_to_the_end(fd):
    """Returns the events until a watch ends because its object is removed. Sorts them, because the kernel may report
    the end of that watch before or after the event of the watch on the object's directory."""
    events, deadline = [], time.monotonic() + 10
    while not any("ignored" in event for event in events) and time.monotonic() < deadline:
        select.select([fd], [], [], 10)
        events += inotify_events(fd)
    return sorted(events)


def is_of_a_reader(event):
    """Returns true if the event is an open, read or close of a directory. Any process can cause these, for example a
    file indexer."""
    return event.endswith("directory") and event.split()[1] in ("open", "access", "close")


def inotify(_):
    fd = libc.inotify_init1(os.O_NONBLOCK)
    for path in ("watched", "outside", "watched/sub", "watched/changed", "watched/removed"):
        print("watch", path, libc.inotify_add_watch(fd, path.encode(), 0xfff))
    for what, call in INOTIFY_STEPS:
        print(what)
        call()
        ends = what in ("remove", "move over", "remove a watched directory")
        events = inotify_events_to_the_end(fd) if ends else inotify_events(fd)
        if what != "list":
            events = [event for event in events if not is_of_a_reader(event)]
        for event in events or ["no event"]:
            print(" ", event)


def change(path):
    with open(path, "r+b") as file:
        file.write(b"changed")


def map_and_change(path):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as region:
        region[0] = 65


INOTIFY_STEPS = [
    ("create", lambda: write("watched/new")),
    ("change", lambda: change("watched/changed")),
    ("change a mapping", lambda: map_and_change("watched/changed")),
    ("truncate", lambda: os.truncate("watched/changed", 2)),
    ("read", lambda: open("watched/changed", "rb").read()),
    ("mode", lambda: os.chmod("watched/changed", 0o600)),
    ("times", lambda: os.utime("watched/changed", (1, 1))),
    ("move", lambda: os.rename("watched/moved", "watched/moved2")),
    ("move over", lambda: os.rename("watched/new", "watched/changed")),
    ("move out", lambda: os.rename("watched/moved-out", "outside/moved-in")),
    ("link", lambda: os.link("watched/moved2", "watched/linked")),
    ("symlink", lambda: os.symlink("x", "watched/symlink")),
    ("mkdir", lambda: os.mkdir("watched/directory")),
    ("move a directory", lambda: os.rename("watched/directory", "watched/sub/directory")),
    ("rmdir", lambda: os.rmdir("watched/sub/directory")),
    ("remove", lambda: os.unlink("watched/removed")),
    ("list", lambda: os.listdir("watched")),
    ("remove a watched directory", lambda: os.rmdir("watched/sub")),
]


def removed_cwd(directory):
    os.chdir("removed/cwd")
    held = os.open(".", os.O_RDONLY)
    os.rmdir(f"{directory}/removed/cwd")
    for what, call, args in (
            ("getcwd?", os.getcwd, ()), ("open .", os.open, (".", os.O_RDONLY)),
            ("list .?", os.listdir, (".",)), ("list held?", os.listdir, (held,)),
            ("mkdir", os.mkdir, ("x",)), ("symlink", os.symlink, ("x", "y")),
            ("create", os.open, ("x", os.O_WRONLY | os.O_CREAT)), ("stat .", os.stat, (".",)),
            ("stat x", os.stat, ("x",)), ("chmod .", os.chmod, (".", 0o700)),
            ("link", os.link, (f"{directory}/log", "x")), ("rmdir ..", os.rmdir, ("../cwd",)),
            ("rename", os.rename, (f"{directory}/log", "x")), ("list ..?", os.listdir, ("..",)),
            ("utime .", os.utime, (".",))):
        attempt(what, call, *args)
    print("nlink", os.fstat(held).st_nlink)
    os.mkdir(f"{directory}/removed/cwd")
    attempt("list . beside a new one?", os.listdir, ".")
    attempt("create beside a new one", os.open, "x", os.O_WRONLY | os.O_CREAT)
    attempt("chdir ..", os.chdir, "..")
    print(os.path.relpath(os.getcwd(), directory))


def unlinked_files(_):
    for flags in (os.O_RDWR, os.O_RDONLY):
        print("flags", flags)
        fd = os.open("held/file", flags)
        other = os.open("held/file", os.O_RDONLY)
        region = mmap.mmap(other, 0, prot=mmap.PROT_READ)
        os.rename("held/file", "held/away")
        os.unlink("held/away")
        use_unlinked(fd, other, region)
        region.close()
        os.close(fd)
        os.close(other)
        write("held/file", b"0123456789" * 1000)


def use_unlinked(fd, other, region):
    print("nlink", os.fstat(fd).st_nlink, os.fstat(other).st_nlink)
    attempt("write", os.pwrite, fd, b"written", 5)
    attempt("append", os.pwrite, fd, b"end", 10000)
    print(os.pread(other, 20, 0), os.fstat(other).st_size, region[:20])
    attempt("truncate", os.ftruncate, fd, 12)
    print(os.pread(other, 20, 0), os.fstat(other).st_size)
    attempt("grow", os.ftruncate, fd, 20000)
    print(os.pread(other, 20, 9990), region[:20])
    for what, call, args in (
            ("chmod", os.fchmod, (fd, 0o640)), ("times", os.utime, (fd, (5, 6))),
            ("setxattr", os.setxattr, (fd, "user.odd", b"value")),
            ("getxattr?", os.getxattr, (fd, "user.odd")), ("listxattr?", os.listxattr, (fd,)),
            ("fsync", os.fsync, (fd,)), ("chown", os.fchown, (fd, os.getuid(), os.getgid())),
            ("fallocate", os.posix_fallocate, (fd, 0, 30000)),
            ("flock", fcntl.flock, (fd, fcntl.LOCK_EX | fcntl.LOCK_NB))):
        attempt(what, call, *args)
    st = os.fstat(other)
    print(stat.filemode(st.st_mode), st.st_size, st.st_mtime == 6)
    link_from_descriptor(fd, "held/linked")
    attempt("open by /proc", os.open, f"/proc/self/fd/{fd}", os.O_RDWR)
    attempt("the old name", os.stat, "held/file")


def link_from_descriptor(fd, name):
    done = libc.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, name.encode(),
                       AT_SYMLINK_FOLLOW)
    print("link by /proc", "ok" if done == 0 else errno.errorcode[ctypes.get_errno()])


def still_open(_):
    """Tests descriptors whose file was renamed or replaced, or lost one of its names."""
    fd = os.open("held/file", os.O_RDWR)
    link_from_descriptor(fd, "held/linked")
    print("nlink", os.fstat(fd).st_nlink, os.stat("held/linked").st_nlink)
    os.unlink("held/file")
    print("nlink", os.fstat(fd).st_nlink, os.stat("held/linked").st_nlink)
    os.pwrite(fd, b"by the descriptor", 0)
    with open("held/linked", "rb") as file:
        print(file.read(20))
    os.rename("held/other", "held/linked")
    print("replaced: nlink", os.fstat(fd).st_nlink, os.pread(fd, 20, 0))
    directory = os.open("held/directory", os.O_RDONLY)
    os.rename("held/directory", "held/renamed")
    attempt("create in a renamed directory", os.open, "x", os.O_WRONLY | os.O_CREAT, dir_fd=directory)
    print(os.listdir("held/renamed"))
    os.unlink("x", dir_fd=directory)
    os.rmdir("held/renamed")
    attempt("create in a removed directory", os.open, "x", os.O_WRONLY | os.O_CREAT, dir_fd=directory)
    print("nlink", os.fstat(directory).st_nlink)


def hard_links(_):
    """A change through one name of a file is visible through its other name, whose attributes and bytes are cached."""
    for name in sorted(os.listdir("linked")):
        with open(f"linked/{name}", "rb") as file:
            print(name, os.fstat(file.fileno()).st_nlink, file.read())
    with open("linked/mapped2", "rb") as file:
        region = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    map_and_change("linked/mapped")
    change("linked/written")
    os.truncate("linked/cut", 2)
    os.utime("linked/timed", (1, 2))
    os.unlink("linked/removed")
    os.link("linked/linked", "linked/linked3")
    os.rename("log", "linked/replaced")
    for name in sorted(os.listdir("linked")):
        st = os.stat(f"linked/{name}")
        with open(f"linked/{name}", "rb") as file:
            print(name, st.st_nlink, st.st_size, st.st_mtime == 2, file.read())
    print("mapping", region[:])
    attempt("rename to another name of the same file", os.rename, "linked/cut", "linked/cut2")
    print(os.path.samefile("linked/cut", "linked/cut2"))


WRITERS, RECORDS = 8, 400


def record_of(writer, number):
    return f"{writer} {number} {'abcdefgh'[writer] * ((writer * 37 + number * 13) % 3000)}\n".encode()


def append(_):
    """No record of several writers is lost or truncated; every second writer reopens the file for each record."""
    children = []
    for writer in range(WRITERS):
        pid = os.fork()
        if pid == 0:
            append_records(writer)
        children.append(pid)
    print("statuses", [os.waitpid(pid, 0)[1] for pid in children])
    with open("log", "rb") as file:
        lines = file.read().splitlines(keepends=True)
    expected = [record_of(writer, number) for writer in range(WRITERS) for number in range(RECORDS)]
    print("lines", len(lines), "whole", sorted(lines) == sorted(expected))
    for writer in range(WRITERS):
        own = [line for line in lines if line.startswith(b"%d " % writer)]
        print(writer, "in order", own == [record_of(writer, number) for number in range(RECORDS)])


def append_records(writer):
    fd = os.open("log", os.O_WRONLY | os.O_APPEND)
    for number in range(RECORDS):
        if writer % 2:
            os.close(fd)
            fd = os.open("log", os.O_WRONLY | os.O_APPEND)
        data = record_of(writer, number)
        if os.write(fd, data) != len(data):
            os._exit(1)
    os._exit(0)


def long_names(_):
    for name in ("n" * 255, "n" * 256, "\u00fc" * 127 + "x", "\u00fc" * 128, "w" * 252):
        size = len(os.fsencode(name))
        print("a name of", size)
        attempt("stat", os.stat, name)
        attempt("create", os.open, name, os.O_WRONLY | os.O_CREAT, 0o644)
        attempt("unlink", os.unlink, name)
        attempt("open what is not there", os.open, name, os.O_RDONLY)
        attempt("mkdir", os.mkdir, name)
        attempt("create below", os.open, f"{name}/{name}", os.O_WRONLY | os.O_CREAT, 0o644)
        attempt("rename below", os.rename, f"{name}/{name}", f"{name}/short")
        attempt("rename back", os.rename, f"{name}/short", f"{name}/{name}")
        attempt("list?", lambda one: [len(child) for child in os.listdir(one)], name)
        attempt("unlink below", os.unlink, f"{name}/{name}")
        attempt("rmdir", os.rmdir, name)
        attempt("symlink", os.symlink, name, f"to{size}")
        attempt("symlink of that name", os.symlink, "x", name)
        attempt("fifo", os.mkfifo, f"x{name[1:]}", 0o600)
        attempt("link", os.link, "log", f"y{name[1:]}")
        attempt("rename", os.rename, "log", name)
        attempt("rename again", os.rename, name, "log")
        attempt("xattr", os.setxattr, "log", "user." + "n" * (size - 5), b"x")
    print(sorted(len(os.fsencode(name)) for name in os.listdir(".")))


def long_paths(directory):
    """Tests paths of the maximum length, PATH_MAX - 1 bytes, and shorter and longer paths."""
    for size in (4094, 4095, 4096, 4097):
        path = directory
        fd = os.open(directory, os.O_RDONLY)
        while size - len(path) > 202:
            if not os.path.lexists(path + "/" + "d" * 200):
                os.mkdir("d" * 200, dir_fd=fd)
            path += "/" + "d" * 200
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        path += "/" + "f" * (size - len(path) - 1)
        print("a path of", len(path))
        attempt("create", write, path)
        attempt("stat", os.stat, path)
        attempt("read?", lambda one: open(one, "rb").read(), path)
        attempt("rename", os.rename, path, path[:-1] + "g")
        attempt("unlink", os.unlink, path[:-1] + "g")
        attempt("mkdir", os.mkdir, path)
        attempt("list", os.listdir, path)
        attempt("rmdir", os.rmdir, path)
        attempt("symlink", os.symlink, "t" * (size - 1), path)
        attempt("readlink?", lambda one: len(os.readlink(one)), path)
        attempt("symlink to it", os.symlink, "/" * size, f"{directory}/to{size}")
        os.close(fd)


def masks(_):
    for mask in (0, 0o002, 0o022, 0o027, 0o077, 0o777):
        os.umask(mask)
        top = f"shared/{mask:03o}"
        os.close(os.open(f"{top}-file", os.O_WRONLY | os.O_CREAT, 0o6777))
        os.close(os.open(f"{top}-plain", os.O_WRONLY | os.O_CREAT, 0o666))
        os.mkdir(f"{top}-directory", 0o6777)
        os.mkfifo(f"{top}-fifo", 0o666)
        os.symlink("x", f"{top}-symlink")
        os.mknod(f"{top}-socket", 0o777 | stat.S_IFSOCK)
    for name in sorted(os.listdir("shared")):
        print(name, mode_of(f"shared/{name}"))


def groups(_):
    """Tests to which groups the caller may give a file, and which group a setgid directory gives to new objects."""
    extra = sorted(os.getgroups())
    print("groups", extra)
    write("shared/file")
    for group in (*extra, 29999, os.getgid()):
        attempt(f"chgrp {group}", os.chown, "shared/file", -1, group)
        print("gid", os.stat("shared/file").st_gid)
    for group in (os.getgid(), *extra):
        directory = f"shared/of-{group}"
        os.mkdir(directory, 0o775)
        attempt("chgrp", os.chown, directory, -1, group)
        attempt("setgid", os.chmod, directory, 0o2775)
        write(f"{directory}/file")
        os.mkdir(f"{directory}/sub", 0o755)
        os.mkdir(f"{directory}/sub/sub", 0o700)
        os.symlink("x", f"{directory}/symlink")
        attempt("setgid of a file", os.chmod, f"{directory}/file", 0o2775)
        os.rename("shared/file", f"{directory}/moved")
        os.rename(f"{directory}/moved", "shared/file")
        for name in (".", "file", "sub", "sub/sub", "symlink"):
            print(directory, name, mode_of(f"{directory}/{name}"))
            print("gid", os.lstat(f"{directory}/{name}").st_gid)


def set_id_bits(_):
    """Tests which calls clear a file's set-id bits."""
    for what, call in (("write", lambda fd: os.write(fd, b"x")),
                       ("write nothing", lambda fd: os.write(fd, b"")),
                       ("truncate", lambda fd: os.ftruncate(fd, 1)),
                       ("fallocate", lambda fd: os.posix_fallocate(fd, 0, 10)),
                       ("chown", lambda fd: os.fchown(fd, os.getuid(), os.getgid()))):
        for mode in (0o6755, 0o2745, 0o4711):
            fd = os.open("held/file", os.O_RDWR)
            os.fchmod(fd, mode)
            call(fd)
            print(what, oct(mode), mode_of("held/file"))
            os.close(fd)


def main():
    _, name, directory = sys.argv
    os.chdir(directory)
    globals()[name](os.getcwd())


if __name__ == "__main__":
    main()
