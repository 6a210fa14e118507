# SPDX-License-Identifier: Apache-2.0
"""A process of a job: calls functions by name for the test that started it.

It imports nothing of the tests, so that it runs under any user and any Python of the system. The
test sends (name, args, kwargs), pickled, and gets (True, value) or (False, exception).
A dotted name is looked up in its module ("os.replace"); a plain one below.
"""

import builtins
import ctypes
import errno
import fcntl
import hashlib
import importlib
import json
import mmap
import os
import pickle
import random
import signal
import shutil
import socket
import stat
import struct
import sys
import threading
import time
import uuid


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
    """What a call returns, or the name of its error."""
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode[error.errno]


def _attributes(status):
    return {"mode": oct(status.st_mode), "ino": status.st_ino, "dev": status.st_dev,
            "nlink": status.st_nlink, "uid": status.st_uid, "gid": status.st_gid,
            "size": status.st_size, "mtime": status.st_mtime_ns}


def look(path):
    """All that calls on this path say of what is there."""
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
    """One change of one or two names, by a number of ways; returns what came of it."""
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


def fill_folder(top, count):
    for number in range(count):
        os.mkdir(f"{top}/{number}")


def replace_in_turn(top, count, told):
    """Writes over file after file of the base, and tells of each when it is done."""
    with open(told, "r+b", buffering=0) as file:
        shared = mmap.mmap(file.fileno(), 8)
        for number in range(count):
            write_file(f"{top}/{number}.new", b"new")
            os.rename(f"{top}/{number}.new", f"{top}/{number}")
            struct.pack_into("<Q", shared, 0, number + 1)


def watch_replaced(top, count, told):
    """Reads what was told to be replaced; returns how often, and what was still the base's."""
    wrong, looks = [], 0
    pick = random.Random(count)
    with open(told, "r+b", buffering=0) as file:
        shared = mmap.mmap(file.fileno(), 8)
        done = 0
        while done < count:
            done = struct.unpack_from("<Q", shared, 0)[0]
            for number in {done - 1, pick.randrange(done)} if done else ():
                looks += 1
                if read_file(f"{top}/{number}") != b"new" or os.stat(f"{top}/{number}").st_size != 3:
                    wrong.append(number)
    return looks, wrong


MAPPED = []


def write_and_keep_mapped(path, data):
    """Writes a file, maps it by a second descriptor, and closes both."""
    writer = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(writer, data)
    both = os.open(path, os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)  # Python's mmap keeps a descriptor of its own
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
    """Changes files and a folder that have no name any more, by every way a descriptor gives."""
    file = os.open(os.path.join(top, "file"), os.O_RDONLY)
    folder = os.open(os.path.join(top, "folder"), os.O_RDONLY)
    replaced = os.open(os.path.join(top, "replaced"), os.O_RDONLY)
    os.unlink(os.path.join(top, "file"))
    os.rmdir(os.path.join(top, "folder"))
    write_file(os.path.join(top, "new"), b"new")
    os.rename(os.path.join(top, "new"), os.path.join(top, "replaced"))
    os.fchmod(file, 0o600)
    os.setxattr(file, "user.x", b"mine")
    writer = os.open(f"/proc/self/fd/{file}", os.O_RDWR)
    os.pwrite(writer, b"CHANGED", 0)
    os.utime(file, (1, 1))
    os.fchmod(folder, 0o700)
    os.truncate(f"/proc/self/fd/{replaced}", 11)
    other = os.open(f"/proc/self/fd/{replaced}", os.O_WRONLY)
    os.pwrite(other, b"HI", 0)
    status = os.fstat(file)
    return {"mode": status.st_mode & 0o7777, "mtime": int(status.st_mtime),
            "xattr": os.getxattr(file, "user.x"), "content": os.pread(file, 100, 0),
            "other": os.pread(writer, 100, 0), "nlink": status.st_nlink,
            "folder_mode": os.fstat(folder).st_mode & 0o7777,
            "replaced": os.pread(replaced, 100, 0)}


def owners(paths):
    return [os.stat(path).st_uid for path in paths]


def digest(path):
    return hashlib.sha256(read_file(path)).hexdigest()


def tree(top):
    """Every path below `top` with the bytes of files, None for folders and targets of links."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            short = os.path.relpath(path, top)
            if os.path.islink(path):
                found[short] = os.readlink(path)
            elif os.path.isdir(path):
                found[short] = None
            else:
                found[short] = read_file(path)
    return found


def triton_put(entry, name, data):
    """As triton.runtime.cache.FileCacheManager.put does it, 3.x."""
    os.makedirs(entry, exist_ok=True)
    temporary = os.path.join(entry, f"tmp.pid_{os.getpid()}_{uuid.uuid4()}")
    os.makedirs(temporary, exist_ok=True)
    staged = os.path.join(temporary, name)
    with open(staged, "wb") as file:
        file.write(data)
    os.replace(staged, os.path.join(entry, name))
    os.removedirs(temporary)


def triton_put_2_1(entry, name, data):
    """As Triton 2.1 does it: a temporary name beside the file."""
    os.makedirs(entry, exist_ok=True)
    staged = os.path.join(entry, f"{name}.tmp.pid_{os.getpid()}_0")
    with open(staged, "wb") as file:
        file.write(data)
    os.replace(staged, os.path.join(entry, name))


def triton_put_groups(top, keys, builder):
    """Looks each key up as Triton does, and puts what is missing; returns the errors, as text.

    Five files of one builder's contents and their group make an entry.
    """
    wrong = []
    for key in keys:
        entry = os.path.join(top, key)
        try:
            os.makedirs(entry, exist_ok=True)
            group = os.path.join(entry, "__grp__kernel.json")
            if os.path.exists(group):
                files = [read_file(path) for path in json.loads(read_file(group)).values()]
                if len({data.split(b" ")[0] for data in files}) != 1:
                    wrong.append(f"{key} is of several builders: {files}")
                continue
            names = [f"kernel.{number}" for number in range(5)]
            for name in names:
                triton_put(entry, name, builder + b" " + name.encode())
            children = {name: os.path.join(entry, name) for name in names}
            triton_put(entry, "__grp__kernel.json", json.dumps(children).encode())
        except OSError as error:
            wrong.append(f"{key}: {error!r}")
    return wrong


def begin_and_look(entry, name):
    """Makes an entry's folder and asks whether it has the file, as every cache of kernels does."""
    os.makedirs(entry, exist_ok=True)
    return os.path.exists(os.path.join(entry, name))


def build_missing(top, keys, seed):
    """Looks up each key, in an order of its own, and builds what is missing; returns the keys built."""
    built = []
    for key in random.Random(seed).sample(keys, len(keys)):
        entry = os.path.join(top, key)
        if begin_and_look(entry, "stub.so"):
            assert read_file(os.path.join(entry, "stub.so")) == key.encode()
            continue
        built.append(key)
        triton_put(entry, "stub.so", key.encode())
    return built


def look_in_child(entry, name):
    """The same as begin_and_look(), by a child of this process."""
    child = os.fork()
    if child == 0:
        os._exit(begin_and_look(entry, name))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def look_until_signalled(entry, name):
    """begin_and_look(), with a handler for SIGUSR1; returns (there, how often the handler ran)."""
    calls = []
    signal.signal(signal.SIGUSR1, lambda *_: calls.append(1))
    there = begin_and_look(entry, name)
    time.sleep(0)  # where the handler runs at the latest
    return there, len(calls)


def look_again_and_again(entry, name, seconds):
    deadline = time.monotonic() + seconds
    while not begin_and_look(entry, name):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def watch_entries(top, keys, seconds):
    """Reads entries as they appear, until all are there; returns what was not whole."""
    wrong, left, deadline = [], set(keys), time.monotonic() + seconds
    while left:
        for key in sorted(left):
            entry = os.path.join(top, key)
            try:
                names = os.listdir(entry)
            except FileNotFoundError:
                continue
            builders = {read_file(os.path.join(entry, name)).split(b" ")[0]
                        for name in names if "__grp__" not in name}
            if len(names) != 6 or len(builders) != 1:
                wrong.append((key, names, builders))
            left.discard(key)
        if time.monotonic() > deadline:
            wrong.append(f"never seen: {sorted(left)}")
            break
    return wrong


def removedirs_error(path):
    """What os.removedirs() meets at each folder: [(path, errno)], ending at the first error."""
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
    """Opens a file and keeps it open; the number is for the other calls."""
    fd = os.open(path, flags, mode)
    _open_files[fd] = path
    return fd


def release(fd):
    del _open_files[fd]
    os.close(fd)


def try_flock(fd):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def flock_until_signal(path, operation):
    """Waits for a lock until SIGUSR1 comes; returns the errno, or 0 with the lock (and keeps it)."""
    def stop(_signal, _frame):
        raise InterruptedError(errno.EINTR, "signal")
    signal.signal(signal.SIGUSR1, stop)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, operation)
    except OSError as error:
        os.close(fd)
        return error.errno
    return 0


def flock_in_threads(path, count):
    """That many threads wait for one lock; each has it once. Returns how many had it at a time."""
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


def lock_again_after_close(path, rounds, use_records=False):
    """Locks, closes, and locks a fresh descriptor without waiting; returns how often that failed."""
    failed = 0
    for _ in range(rounds):
        fd = os.open(path, os.O_RDWR)
        try:
            (fcntl.lockf if use_records else fcntl.flock)(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            failed += 1
        os.close(fd)
    return failed


def share_flock(path, way):
    """Locks, hands the descriptor on, closes its own; returns who holds the lock on the way."""
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
            there.recv(1)  # until the parent has looked
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


def try_flock_path(path, operation=fcntl.LOCK_EX):
    """Whether a lock of it can be had at once; gives it back."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def try_record(path, start=0, length=0, command=fcntl.F_SETLK, kind=fcntl.F_WRLCK):
    """Whether bytes can be locked at once."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.fcntl(fd, command, _flock(kind, start, length))
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def set_record(fd, start=0, length=0, command=fcntl.F_SETLKW, kind=fcntl.F_WRLCK):
    fcntl.fcntl(fd, command, _flock(kind, start, length))


def find_record(path, start=0, length=0):
    """F_GETLK: (type, start, length, pid) of what is in the way, or None."""
    fd = os.open(path, os.O_RDWR)
    try:
        found = fcntl.fcntl(fd, fcntl.F_GETLK, _flock(fcntl.F_WRLCK, start, length))
    finally:
        os.close(fd)
    kind, _, start, length, pid = struct.unpack(_FLOCK, found)
    return None if kind == fcntl.F_UNLCK else (kind, start, length, pid)


def lock_records_and_leave_them_to_a_child(path):
    """Locks, forks a child that keeps the descriptor, and closes its own. Returns the child."""
    fd = os.open(path, os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    child = os.fork()
    if child == 0:
        time.sleep(3600)
    os.close(fd)
    return child


def work_in_a_child(folder, how):
    """A process that outlives this one and works in a folder; returns it."""
    ready, told = os.pipe()
    if os.fork() == 0:
        if how == "grandchild" and os.fork() != 0:
            os._exit(0)
        os.setsid()
        if how == "file":
            os.open(os.path.join(folder, "object.o"), os.O_CREAT | os.O_WRONLY, 0o644)
        else:
            os.chdir(folder)
        for fd in (0, 1, 2):
            os.close(fd)
        os.write(told, struct.pack("<i", os.getpid()))
        while True:
            time.sleep(3600)
    return struct.unpack("<i", os.read(ready, 4))[0]


_FLOCK = "hhqqi4x"


def _flock(kind, start, length):
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0)


def map_and_read(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as region:
        return bytes(region)


def bind_socket(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)


def fill(path, chunk, most):
    """Writes up to `most` bytes; returns (written, errno of the end or 0)."""
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


def exchange_repeatedly(one, two, times):
    """renameat2(RENAME_EXCHANGE), as often as that."""
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(times):
        if libc.renameat2(-100, one.encode(), -100, two.encode(), 2) != 0:
            raise OSError(ctypes.get_errno(), "renameat2")


def work_below_repeatedly(folder, times):
    """Reads, writes, creates and removes below `folder`; returns the bytes that were read."""
    seen = set()
    for number in range(times):
        for call in (lambda: seen.add(read_file(f"{folder}/file")),
                     lambda: write_file(f"{folder}/file", b"new"),
                     lambda: write_file(f"{folder}/made", b"made"),
                     lambda: os.mkdir(f"{folder}/folder{number}"),
                     lambda: os.chmod(f"{folder}/file", 0o644),
                     lambda: os.unlink(f"{folder}/made")):
            try:
                call()
            except (PermissionError, FileNotFoundError, NotADirectoryError):
                pass  # the name was the link just then
    return {bytes(data) for data in seen if data}


# Errors that processes which share names give each other on any file system.
EXPECTED_IN_A_CROWD = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


def move_about(top, moves):
    """Renames files from folder to folder, over one another, with others in the names they had."""
    pick = random.Random(moves)
    for move in range(moves):
        name = f"{top}/{pick.randrange(3)}/{pick.randrange(2)}"
        write_file(f"{top}/new", str(move).encode() * 100)
        os.rename(f"{top}/new", f"{name}.new")
        os.rename(f"{name}.new", name)
        try:
            os.rename(name, f"{top}/{pick.randrange(3)}/{pick.randrange(2)}")
            os.mkdir(f"{name}.folder")
            os.rmdir(f"{name}.folder")
            os.unlink(name)
        except FileNotFoundError:
            pass  # the rename has taken it away: nobody else does
    write_file(f"{top}/stop", b"")


def look_at_the_moved(top):
    """Opens whatever is there and asks about it by its descriptor, until there is `stop`.

    Whatever becomes of its name, an open file is the same one, and whole. Returns what was wrong.
    """
    wrong, looks = [], 0
    while not os.path.exists(f"{top}/stop"):
        for name in (f"{top}/{folder}/{file}" for folder in range(3) for file in range(2)):
            try:
                fd = os.open(name, os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                first = os.fstat(fd)
                data = os.read(fd, 4096)
                os.listxattr(fd)
                last = os.fstat(fd)
            except OSError as error:
                wrong.append(f"{name}: {error}")
                continue
            finally:
                os.close(fd)
            looks += 1
            if (first.st_ino, first.st_size) != (last.st_ino, len(data)):
                wrong.append(f"{name}: {first} is not {last}, {len(data)} bytes")
    return wrong if looks else ["it has seen nothing"]


def crowd(top, seed, actions):
    """Mixed operations: on names shared with others, and on own ones, whose contents are checked.

    Returns the unexpected errors, as text.
    """
    pick = random.Random(seed)
    own, wrong = {}, []
    os.makedirs(f"{top}/own-{seed}", exist_ok=True)

    def shared():
        return f"{top}/shared{pick.randrange(4)}/file{pick.randrange(6)}"

    def write_own():
        name, data = f"{top}/own-{seed}/{pick.randrange(10)}", pick.randbytes(pick.randrange(9000))
        write_file(name, data)
        own[name] = data

    def replace_own():
        if own:
            name = pick.choice(sorted(own))
            write_file(f"{name}.new", b"replaced")
            os.replace(f"{name}.new", name)
            own[name] = b"replaced"

    def rename_own():
        if own:
            name = pick.choice(sorted(own))
            os.rename(name, f"{name}x")
            own[f"{name}x"] = own.pop(name)

    def unlink_own():
        if own:
            name = pick.choice(sorted(own))
            os.unlink(name)
            del own[name]

    def check_own():
        for name, data in own.items():
            if read_file(name) != data:
                wrong.append(f"{name} has other bytes")

    def replace_shared():
        name = shared()
        os.makedirs(os.path.dirname(name), exist_ok=True)
        write_file(f"{name}.{seed}", b"shared" * 100)
        os.replace(f"{name}.{seed}", name)

    def read_shared():
        data = read_file(shared())
        if data != b"shared" * 100:
            wrong.append(f"a shared file is torn: {data[:40]}")

    calls = [write_own, replace_own, rename_own, unlink_own, check_own, replace_shared,
             read_shared, lambda: os.unlink(shared()),
             lambda: os.listdir(os.path.dirname(shared())), lambda: os.stat(shared()),
             lambda: os.chmod(shared(), 0o600 + pick.randrange(64)),
             lambda: os.utime(shared()), lambda: os.rmdir(os.path.dirname(shared()))]
    for _ in range(actions):
        call = pick.choice(calls)
        try:
            call()
        except EXPECTED_IN_A_CROWD as error:
            if call.__name__.endswith("_own"):
                wrong.append(f"{call.__name__}: {error!r}")
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                wrong.append(f"{call.__name__}: {error!r}")
    check_own()
    names = sorted(f"{top}/own-{seed}/{name}" for name in os.listdir(f"{top}/own-{seed}"))
    if names != sorted(own):
        wrong.append(f"own names are {names}, not {sorted(own)}")
    return wrong[:10]


def _resolve(name):
    module, _, attribute = name.rpartition(".")
    if module:
        try:
            return getattr(importlib.import_module(module), attribute)
        except ImportError:
            outer, _, cls = module.rpartition(".")
            return getattr(getattr(importlib.import_module(outer), cls), attribute)
    return globals().get(name) or getattr(builtins, name)


def _receive(stream):
    head = stream.read(4)
    if len(head) < 4:
        return None
    return pickle.loads(stream.read(struct.unpack("<I", head)[0]))


def _send(stream, message):
    data = pickle.dumps(message)
    stream.write(struct.pack("<I", len(data)) + data)
    stream.flush()


def main():
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (request := _receive(requests)) is not None:
        name, args, kwargs = request
        try:
            reply = (True, _resolve(name)(*args, **kwargs))
        except Exception as error:  # the test decides what it expected
            reply = (False, error)
        try:
            _send(replies, reply)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            _send(replies, (False, RuntimeError(f"{name}: {error}")))


if __name__ == "__main__":
    sys.exit(main())
