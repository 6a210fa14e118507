# SPDX-License-Identifier: Apache-2.0
"""Processes that make many kinds of calls below one directory, and check the results."""

import errno
import os
import random

from agent_files import write_file, read_file


# The errors that processes can cause for each other on any file system if they share names.
EXPECTED_IN_A_CROWD = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


def move_about(top, moves):
    """Renames files between directories, sometimes over existing files, and creates and removes names beside them;
    finally creates the file `stop`."""
    pick = random.Random(moves)
    for move in range(moves):
        name = f"{top}/{pick.randrange(3)}/{pick.randrange(2)}"
        write_file(f"{top}/new", str(move).encode() * 100)
        os.rename(f"{top}/new", f"{name}.new")
        os.rename(f"{name}.new", name)
        try:
            os.rename(name, f"{top}/{pick.randrange(3)}/{pick.randrange(2)}")
            os.mkdir(f"{name}.directory")
            os.rmdir(f"{name}.directory")
            os.unlink(name)
        except FileNotFoundError:
            pass  # a rename has replaced or moved the file; no other process removes files
    write_file(f"{top}/stop", b"")


def look_at_the_moved(top):
    """Repeatedly opens each existing file and reads its data and attributes through the descriptor, until `stop`
    exists, and then once more.

    An open file must keep its inode and its size when its name is renamed or removed. Returns the errors.
    """
    wrong, looks, is_last = [], 0, False
    while not is_last:
        is_last = os.path.exists(f"{top}/stop")
        for name in (f"{top}/{directory}/{file}" for directory in range(3) for file in range(2)):
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


class CrowdMember:
    """Performs random operations on names shared with others, and on its own names, whose contents it checks."""

    def __init__(self, top, seed):
        self.top, self.seed = top, seed
        self.pick = random.Random(seed)
        self.own, self.wrong = {}, []
        self.calls = [
            self.write_own, self.replace_own, self.rename_own, self.unlink_own, self.check_own,
            self.replace_shared, self.read_shared, lambda: os.unlink(self.shared()),
            lambda: os.listdir(os.path.dirname(self.shared())), lambda: os.stat(self.shared()),
            lambda: os.chmod(self.shared(), 0o600 + self.pick.randrange(64)),
            lambda: os.utime(self.shared()), lambda: os.rmdir(os.path.dirname(self.shared()))]
        os.makedirs(f"{top}/own-{seed}", exist_ok=True)

    def shared(self):
        return f"{self.top}/shared{self.pick.randrange(4)}/file{self.pick.randrange(6)}"

    def write_own(self):
        name = f"{self.top}/own-{self.seed}/{self.pick.randrange(10)}"
        data = self.pick.randbytes(self.pick.randrange(9000))
        write_file(name, data)
        self.own[name] = data

    def replace_own(self):
        if self.own:
            name = self.pick.choice(sorted(self.own))
            write_file(f"{name}.new", b"replaced")
            os.replace(f"{name}.new", name)
            self.own[name] = b"replaced"

    def rename_own(self):
        if self.own:
            name = self.pick.choice(sorted(self.own))
            os.rename(name, f"{name}x")
            self.own[f"{name}x"] = self.own.pop(name)

    def unlink_own(self):
        if self.own:
            name = self.pick.choice(sorted(self.own))
            os.unlink(name)
            del self.own[name]

    def check_own(self):
        for name, data in self.own.items():
            if read_file(name) != data:
                self.wrong.append(f"{name} has other bytes")

    def replace_shared(self):
        name = self.shared()
        os.makedirs(os.path.dirname(name), exist_ok=True)
        write_file(f"{name}.{self.seed}", b"shared" * 100)
        os.replace(f"{name}.{self.seed}", name)

    def read_shared(self):
        data = read_file(self.shared())
        if data != b"shared" * 100:
            self.wrong.append(f"a shared file is torn: {data[:40]}")

    def act(self):
        call = self.pick.choice(self.calls)
        try:
            call()
        except EXPECTED_IN_A_CROWD as error:
            if call.__name__.endswith("_own"):
                self.wrong.append(f"{call.__name__}: {error!r}")
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                self.wrong.append(f"{call.__name__}: {error!r}")

    def check_names(self):
        directory = f"{self.top}/own-{self.seed}"
        names = sorted(f"{directory}/{name}" for name in os.listdir(directory))
        if names != sorted(self.own):
            self.wrong.append(f"own names are {names}, not {sorted(self.own)}")


def crowd(top, seed, actions):
    """Makes a CrowdMember perform `actions` operations; returns up to ten unexpected errors, as text."""
    member = CrowdMember(top, seed)
    for _ in range(actions):
        member.act()
    member.check_own()
    member.check_names()
    return member.wrong[:10]


def ask_until(directory, stop, core=None):
    """Looks up missing names without a pause until `stop` exists; returns the number of lookups."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    asked = 0
    while asked % 32 != 0 or not os.path.exists(stop):
        asked += 1
        os.path.exists(f"{directory}/none{os.getpid()}-{asked}")
    return asked
