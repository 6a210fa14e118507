# SPDX-License-Identifier: Apache-2.0
"""Every call on a directly opened descriptor behaves as on a descriptor that the mount has opened."""

import errno
import fcntl
import os
import struct

import pytest
from direct import KEY, UID, Count, warm
from jobs import PYTHON, wait_until

BYTES = b"of the base"


def open_directly(mount, process):
    with Count(mount, process.job) as count:
        fd = process("hold", process.path(KEY, "file"))
    assert count.opens == 1
    return fd


def test_the_name_of_a_descriptor_is_the_one_that_the_application_uses(mount, shimmed):
    fd = open_directly(mount, shimmed)
    assert shimmed("os.readlink", f"/proc/self/fd/{fd}") == f"{mount.path}/{KEY}/file"


def test_fstat_with_an_invalid_pointer_fails_as_natively(mount, shimmed):
    fd = open_directly(mount, shimmed)
    assert shimmed("stat_into_nowhere", fd) == (-1, errno.EFAULT)


def test_links_are_read_from_the_base(mount, shimmed, store):
    for path, error in ((f"{KEY}/file", errno.EINVAL), (f"{KEY}/missing", errno.ENOENT)):
        with Count(mount) as count, pytest.raises(OSError) as refused:
            shimmed("os.readlink", shimmed.path(path))
        assert refused.value.errno == error and count.looks == 1


def test_locks_of_two_jobs_on_a_file_of_their_own_are_two(mount, shimmed, shimmed_job_of):
    other = warm(mount, shimmed_job_of(mount, "other", 20002))
    one, two = open_directly(mount, shimmed), open_directly(mount, other)
    assert shimmed("try_flock", one)
    assert other("try_flock", two)


def test_locks_of_one_job_exclude_each_other_however_the_file_was_opened(mount, shimmed, plain):
    directly = open_directly(mount, shimmed)
    by_mount = plain("hold", plain.path(KEY, "file"))
    assert plain("try_flock", by_mount)
    assert not shimmed("try_flock", directly)
    plain("fcntl.flock", by_mount, fcntl.LOCK_UN)
    assert shimmed("try_flock", directly)
    assert not plain("try_flock", by_mount)


def test_record_locks_are_taken_on_the_mount_too(mount, shimmed, plain):
    directly = open_directly(mount, shimmed)
    by_mount = plain("hold", plain.path(KEY, "file"), os.O_RDWR)
    shimmed("fcntl.lockf", directly, fcntl.LOCK_SH)
    with pytest.raises(BlockingIOError):
        plain("fcntl.lockf", by_mount, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_reopened_descriptor_keeps_its_offset(mount, shimmed):
    fd = open_directly(mount, shimmed)
    assert shimmed("os.read", fd, 3) == BYTES[:3]
    shimmed("os.set_inheritable", fd, True)
    assert shimmed("try_flock", fd)
    assert shimmed("os.read", fd, 100) == BYTES[3:]
    assert shimmed("os.get_inheritable", fd)
    assert not shimmed("fcntl.fcntl", fd, fcntl.F_GETFL) & os.O_ACCMODE


def test_a_file_that_was_not_used_for_a_day_is_opened_by_the_mount_once(mount, shimmed, store):
    file = store / KEY / "sub/deep"
    os.utime(file, (1, 1))
    for opens in (0, 1, 1):
        with Count(mount) as count:
            assert shimmed.read(f"{KEY}/sub/deep") == b"deep in the base"
        assert count.opens == opens
        wait_until(lambda: os.stat(file).st_atime > os.stat(store / KEY / "file").st_mtime - 60,
                   what="the record of the use")


def test_a_use_is_recorded_once_for_the_files_of_an_entry(mount, shimmed, store):
    """Eviction counts the latest use of any file of an entry, so the library need not record the use of a second
    file."""
    os.utime(store / KEY / "sub/deep", (1, 1))
    for name in ("file", "sub/deep"):
        with Count(mount) as count:
            shimmed.read(f"{KEY}/{name}")
        assert count.opens == 1
    assert os.stat(store / KEY / "sub/deep").st_atime == 1


CHANGES = {
    "chmod": (("os.fchmod", 0o751), lambda status: status.st_mode & 0o777, 0o751),
    "utime": (("os.utime", (7, 8)), lambda status: status.st_mtime, 8),
    "setxattr": (("os.setxattr", "user.colour", b"red"), None, None),
    "removexattr": (("os.removexattr", "user.base"), None, None),
    "chown": (("os.fchown", UID, UID), lambda status: status.st_uid, UID),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changes_by_a_descriptor_affect_the_views_file(mount, shimmed, plain, store, what):
    os.setxattr(store / KEY / "file", "user.base", b"x")
    call, look, expected = CHANGES[what]
    before = os.stat(store / KEY / "file")
    fd = open_directly(mount, shimmed)
    shimmed(call[0], fd, *call[1:])
    after = os.stat(store / KEY / "file")
    assert (after.st_mode, after.st_mtime, after.st_uid) == (before.st_mode, before.st_mtime,
                                                             before.st_uid)
    assert os.listxattr(store / KEY / "file") == ["user.base"]
    if look is not None:
        assert look(shimmed("os.stat", shimmed.path(KEY, "file"))) == expected
        assert look(shimmed("os.fstat", fd)) == expected
    names = {"setxattr": ["user.base", "user.colour"], "removexattr": []}.get(what, ["user.base"])
    assert sorted(plain("os.listxattr", plain.path(KEY, "file"))) == names


TIMES = struct.pack("4q", 7, 0, 8, 0)
RECORD = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
AT_EMPTY_PATH = 0x1000
RAW_ONLY = pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls by their numbers")
FD = "fd"
OTHER_WAYS = {
    "fchmod by number": ("syscall", 91, FD, 0o751),
    "fchown by number": ("syscall", 93, FD, UID, UID),
    "fsetxattr by number": ("syscall", 190, FD, b"user.colour", b"red", 3, 0),
    "fremovexattr by number": ("syscall", 199, FD, b"user.base"),
    "futimens by number": ("syscall", 280, FD, None, TIMES, 0),
    "futimesat by number": ("syscall", 261, FD, None, TIMES),
    "utimensat of nothing by number": ("syscall", 280, FD, b"", TIMES, AT_EMPTY_PATH),
    "fchownat of nothing by number": ("syscall", 260, FD, b"", UID, UID, AT_EMPTY_PATH),
    "utimensat of nothing": ("utimensat", FD, b"", TIMES, AT_EMPTY_PATH),
    "fchownat of nothing": ("fchownat", FD, b"", UID, UID, AT_EMPTY_PATH),
    "futimesat of no path": ("futimesat", FD, None, TIMES),
}


@RAW_ONLY
@pytest.mark.parametrize("way", OTHER_WAYS)
def test_changes_by_a_descriptor_in_other_ways_affect_the_views_file(mount, shimmed, store, way):
    os.setxattr(store / KEY / "file", "user.base", b"x")
    before = os.stat(store / KEY / "file")
    fd = open_directly(mount, shimmed)
    shimmed("call_libc", *(fd if one is FD else one for one in OTHER_WAYS[way]))
    after = os.stat(store / KEY / "file")
    assert (after.st_mode, after.st_mtime, after.st_uid) == (before.st_mode, before.st_mtime,
                                                             before.st_uid)
    assert os.listxattr(store / KEY / "file") == ["user.base"]
    assert mount.layer_files("j") == {f"{KEY}/file": BYTES}


@RAW_ONLY
def test_locks_by_raw_calls_are_taken_on_the_mount(mount, shimmed, plain):
    one, two = open_directly(mount, shimmed), open_directly(mount, shimmed)
    by_mount = plain("hold", plain.path(KEY, "file"), os.O_RDWR)
    assert plain("try_flock", by_mount)
    plain("fcntl.lockf", by_mount, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for call in ((73, one, fcntl.LOCK_EX | fcntl.LOCK_NB), (72, two, fcntl.F_SETLK, RECORD)):
        with pytest.raises(BlockingIOError):
            shimmed("call_libc", "syscall", *call)


ST_DEV = (0, "<Q", lambda word: word)
STX_DEV = (136, "<II", os.makedev)
LOOKS = {
    "fstat by number": (ST_DEV, ("syscall", 5, FD, "out")),
    "newfstatat by number": (ST_DEV, ("syscall", 262, FD, b"", "out", AT_EMPTY_PATH)),
    "statx by number": (STX_DEV, ("syscall", 332, FD, b"", AT_EMPTY_PATH, 0x7ff, "out")),
    "fstatat of no path": (ST_DEV, ("fstatat", FD, None, "out", AT_EMPTY_PATH)),
    "statx of no path": (STX_DEV, ("statx", FD, None, AT_EMPTY_PATH, 0x7ff, "out")),
}


@RAW_ONLY
@pytest.mark.parametrize("way", LOOKS)
def test_other_ways_show_a_descriptor_as_the_views_file(mount, shimmed, way):
    fd = open_directly(mount, shimmed)
    (offset, layout, device), call = LOOKS[way]
    try:
        told = shimmed("told_by_libc", 256, *(fd if one is FD else one for one in call))
    except OSError as error:
        assert error.errno == errno.EFAULT and "no path" in way  # a kernel before 6.11
        return
    shown = shimmed("os.stat", shimmed.path(KEY, "file"))
    assert device(*struct.unpack_from(layout, told, offset)) == shown.st_dev


def test_a_descriptor_whose_file_was_replaced_stays_unchanged(mount, shimmed, plain):
    fd = open_directly(mount, shimmed)
    plain.write(f"{KEY}/n", b"new")
    plain("os.rename", plain.path(KEY, "n"), plain.path(KEY, "file"))
    assert shimmed("try_flock", fd)  # locks the old file, which no longer has a name
    assert shimmed("os.read", fd, 100) == BYTES


RAW = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
p = sys.argv[1]
def held():
    links = {int(n): os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')
             if os.path.lexists(f'/proc/self/fd/{n}')}
    return [n for n, link in links.items() if n >= 500 and link.endswith('/base')]
def check():
    for i in range(100):
        assert os.path.exists(p) and not os.path.exists(p + 'x')
check()
(number,) = held()
"""


@RAW_ONLY
@pytest.mark.parametrize("call", [
    "3, number", "33, other, number", "292, other, number, 0", "436, number, number + 9, 0",
], ids=["close", "dup2", "dup3", "close_range"])
def test_raw_calls_get_the_number_that_they_want(mount, shimmed, call):
    code = f"{RAW}other = os.open('/', os.O_RDONLY)\nlibc.syscall({call})\nassert not held()\n" \
           "check()\nif os.path.lexists(f'/proc/self/fd/{number}'):\n" \
           "  assert os.readlink(f'/proc/self/fd/{number}') == '/'"
    with Count(mount) as count:
        done = shimmed("subprocess.run", [PYTHON, "-Ic", code, shimmed.path(KEY, "file")],
                       capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert count.looks >= 300


@RAW_ONLY
def test_a_process_that_changes_user_by_a_raw_call_is_not_served_any_more(mount, shimmed_job_of):
    process = warm(mount, shimmed_job_of(mount, "r", 0))
    code = f"{RAW}libc.syscall(105, {UID})\nassert os.geteuid() == {UID}\ncheck()"
    with Count(mount, "r") as count:
        done = process("subprocess.run", [PYTHON, "-Ic", code, process.path(KEY, "file")],
                       capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert 100 < count.looks <= 200
