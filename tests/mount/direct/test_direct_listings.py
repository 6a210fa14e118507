# SPDX-License-Identifier: Apache-2.0
"""A directory of the base that the job has not changed is listed directly, exactly as the mount would list it."""

import errno
import fcntl
import itertools
import os
import stat
import subprocess

import pytest
from direct import KEY, UID, Count, warm
from jobs import PYTHON, wait_until

KEY_NAMES = [".", "..", "file", "sub"]
CALLS = ["readdir", "readdir64", "readdir_r", "readdir64_r"]
SCANS = ["scandir", "scandir64", "scandirat", "scandirat64"]


def open_directly(mount, process, path):
    with Count(mount, process.job) as count:
        stream = process("open_stream", path)
    assert count.looks == 1
    return stream


def names_of(process, path):
    return [name for name, _, _ in process("list_stream", path)]


@pytest.mark.parametrize("call", CALLS)
def test_a_direct_listing_is_that_of_the_mount(mount, shimmed, plain, base, call):
    (base / KEY / "link").symlink_to("file")
    os.mkfifo(base / KEY / "fifo")
    for directory, looks in ((KEY, 1), (f"{KEY}/sub", 1), ("other/directory", 1), ("other", 0), ("triton", 0)):
        wait_until(lambda: names_of(plain, plain.path(directory)) == sorted([".", "..", *os.listdir(base / directory)]))
        with Count(mount) as count:
            listed = shimmed("list_stream", shimmed.path(directory), call)
        assert count.looks == looks, directory
        assert listed == plain("list_stream", plain.path(directory), call)
        for name, inode, kind in listed:
            if name == ".." and looks == 0:
                continue  # here, `..` is the view's root, not a directory of the base
            status = shimmed("os.lstat", shimmed.path(directory, name))
            assert (inode, kind) == (status.st_ino, stat.S_IFMT(status.st_mode) >> 12), (directory, name)


@pytest.mark.parametrize("call", SCANS)
def test_scandir_is_answered_from_the_base(mount, shimmed, plain, call):
    for without in ("", "file"):
        with Count(mount) as count:
            listed = shimmed("scan", shimmed.path(KEY), call, without)
        assert count.looks == 1
        assert listed == plain("scan", plain.path(KEY), call, without)
    with Count(mount) as count, pytest.raises(FileNotFoundError):
        shimmed("scan", shimmed.path(KEY, "missing"), call)
    assert count.looks == 1
    with pytest.raises(NotADirectoryError):
        shimmed("scan", shimmed.path(KEY, "file"), call)


def test_python_lists_scans_and_reads_links_without_the_mount(mount, shimmed, plain, base):
    (base / "other/directory/link").symlink_to("file")
    wait_until(lambda: plain("os.path.lexists", plain.path("other/directory/link")))
    for call, arguments, looks in (("os.listdir", (), 1), ("scan_with_status", (), 3), ("os.access", (os.R_OK,), 1),
                                   ("os.access", (os.F_OK,), 1), ("os.access", (os.X_OK,), 1)):
        with Count(mount) as count:
            told = shimmed(call, shimmed.path("other/directory"), *arguments)
        assert count.looks == looks, call
        expected = plain(call, plain.path("other/directory"), *arguments)
        assert (sorted(told) == sorted(expected)) if isinstance(told, list) else told == expected
    with Count(mount) as count:
        assert shimmed("os.readlink", shimmed.path("other/directory/link")) == "file"
    assert count.looks == 1


def test_opening_a_stream_on_a_non_directory_fails(mount, shimmed):
    with Count(mount) as count, pytest.raises(FileNotFoundError):
        shimmed("open_stream", shimmed.path(KEY, "missing"))
    assert count.looks == 1
    with pytest.raises(NotADirectoryError):
        shimmed("open_stream", shimmed.path(KEY, "file"))


def test_names_that_no_view_shows_are_in_no_listing(mount, shimmed, plain, base):
    (base / KEY / ".wh.file").write_bytes(b"")
    (base / KEY / ".wh..wh..opq").write_bytes(b"")
    os.mknod(base / KEY / "whiteout", stat.S_IFCHR, os.makedev(0, 0))
    os.mknod(base / KEY / "device", stat.S_IFCHR, os.makedev(1, 3))
    wait_until(lambda: "device" in names_of(plain, plain.path(KEY)))
    for call, listed in [("list_stream", one) for one in CALLS] + [("scan", one) for one in SCANS]:
        with Count(mount) as count:
            names = [name for name, _, _ in shimmed(call, shimmed.path(KEY), listed)]
        assert names == [".", "..", "device", "file", "sub"], listed
        assert count.looks == 1
    for top in (mount.path, f"{mount.path}/.jobs/j"):
        assert shimmed("os.listdir", str(top)) == plain("os.listdir", str(top))


CHANGES = {
    "made": lambda at: [("write_file", at("n"), b"new")],
    "made a directory": lambda at: [("os.mkdir", at("n"))],
    "removed": lambda at: [("os.unlink", at("file"))],
    "replaced": lambda at: [("write_file", at("n"), b"new"), ("os.rename", at("n"), at("file"))],
    "renamed": lambda at: [("os.rename", at("file"), at("n"))],
    "linked": lambda at: [("os.link", at("file"), at("n"))],
    "overwritten": lambda at: [("write_file", at("file"), b"new")],
    "given another mode": lambda at: [("os.chmod", at("sub"), 0o700)],
    "removed with what is in it": lambda at: [("shutil.rmtree", at("sub"))],
    "made anew": lambda at: [("shutil.rmtree", at("sub")), ("write_file", at("sub"), b"new")],
    "moved away": lambda at: [("os.rename", at("sub"), at("../moved"))],
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("by", ["a shimmed process", "a plain process"])
@pytest.mark.parametrize("moment", ["before it is opened", "before its first entry", "before it is rewound",
                                    "before it is sought"])
def test_a_change_that_has_returned_is_in_a_listing_that_begins_later(mount, shimmed, shimmed_job_of, plain, what,
                                                                     by, moment):
    writer = plain if by == "a plain process" else shimmed_job_of(mount, "j", UID)
    before = shimmed("list_stream", shimmed.path(KEY))
    stream = open_directly(mount, shimmed, shimmed.path(KEY))
    if "first" not in moment:
        assert shimmed("names_of_stream", stream) == KEY_NAMES
    for change in CHANGES[what](lambda end: writer.path(KEY, end)):
        writer(*change)
    if "opened" in moment:
        stream = shimmed("open_stream", shimmed.path(KEY))
    elif "rewound" in moment:
        shimmed("rewind_stream", stream)
    elif "sought" in moment:
        shimmed("seek_stream", stream, 0)
    listed = sorted(shimmed("read_stream", stream))
    assert listed == plain("list_stream", plain.path(KEY))
    if what not in ("overwritten", "given another mode", "replaced"):
        assert listed != before
    assert shimmed("read_stream", stream) == []
    shimmed("close_stream", stream)


@pytest.mark.parametrize("what", CHANGES)
def test_a_listing_that_is_under_way_has_each_name_that_stays_once(mount, shimmed, plain, what):
    stream = open_directly(mount, shimmed, shimmed.path(KEY))
    names = shimmed("names_of_stream", stream, 2)
    for change in CHANGES[what](lambda end: plain.path(KEY, end)):
        plain(*change)
    names += shimmed("names_of_stream", stream)
    assert len(names) == len(set(names))
    stays = set(KEY_NAMES) & set(names_of(plain, plain.path(KEY)))
    assert stays <= set(names)


def test_changes_elsewhere_keep_a_listing_direct(mount, shimmed, plain):
    plain.write(f"{KEY}/sub/n", b"new")
    for directory, looks in ((KEY, 0), (f"{KEY}/sub", 0), ("triton", 0), ("other/directory", 1)):
        with Count(mount) as count:
            assert shimmed("list_stream", shimmed.path(directory)) == plain("list_stream", plain.path(directory))
        assert count.looks == looks, directory


def test_published_and_evicted_entries_are_listed_at_once(mount, shimmed, job_of):
    with Count(mount) as count, pytest.raises(FileNotFoundError):
        shimmed("open_stream", shimmed.path("triton/LATER"))
    assert count.looks == 1
    job_of(mount, "two", 20002).put_group("LATER", {"kernel.ptx": b"of another"})
    stream = open_directly(mount, shimmed, shimmed.path("triton/LATER"))
    names = shimmed("names_of_stream", stream)
    assert "kernel.ptx" in names
    assert names == names_of(job_of(mount, "three", 20003), f"{mount.path}/triton/LATER")
    (mount.store / "triton/LATER/kernel.ptx").unlink()
    shimmed("rewind_stream", stream)
    for _ in range(2):
        assert shimmed("names_of_stream", stream) == [name for name in names if name != "kernel.ptx"]
        stream = open_directly(mount, shimmed, shimmed.path("triton/LATER"))
    (mount.store / "triton/LATER").rename(mount.store / "gone")
    with pytest.raises(FileNotFoundError):
        shimmed("open_stream", shimmed.path("triton/LATER"))


def test_a_lock_file_that_the_view_hides_is_in_no_listing(own_profiles, mount_store, base, shimmed_job_of, job_of):
    """Another job still holds a lock on the file, so the file stays in the base when a job removes it, and disappears
    only from that job's view."""
    (own_profiles / "mine.toml").write_text('name = "mine"\nvariable = "MINE_DIR"\nevidence = "read"\n'
                                            '[class]\nlock = ["*.lock"]\n')
    (base / "mine/directory").mkdir(parents=True)
    mount = mount_store(base)
    shimmed, plain = warm(mount, shimmed_job_of(mount, "j", UID)), job_of(mount, "j", UID)
    other = job_of(mount, "two", 20002)
    held = other("hold", other.path("mine/directory/x.lock"), os.O_RDWR | os.O_CREAT)
    other("fcntl.flock", held, fcntl.LOCK_EX)
    path = shimmed.path("mine/directory")
    wait_until(lambda: names_of(shimmed, path) == [".", "..", "x.lock"])
    stream = open_directly(mount, shimmed, path)
    plain("os.unlink", plain.path("mine/directory/x.lock"))
    assert (base / "mine/directory/x.lock").exists()
    for _ in range(2):
        assert shimmed("names_of_stream", stream) == names_of(plain, path) == [".", ".."]
        shimmed("rewind_stream", stream)
    plain.write("other/n", b"a layer")
    mount.cli("job", "discard", "j")
    warm(mount, shimmed)
    assert names_of(shimmed, path) == names_of(plain, path)
    assert names_of(other, other.path("mine/directory")) == [".", "..", "x.lock"]


def test_changes_by_a_streams_descriptor_affect_the_view(mount, shimmed, plain, store):
    for most in (0, 2, None):
        before = sorted(os.listdir(store / KEY))
        stream = open_directly(mount, shimmed, shimmed.path(KEY))
        names = shimmed("names_of_stream", stream, most)
        fd = shimmed("stream_descriptor", stream)
        assert shimmed("stream_descriptor", stream) == fd
        names += shimmed("names_of_stream", stream)
        assert sorted(names) == KEY_NAMES
        shown = shimmed("os.stat", shimmed.path(KEY))
        status = shimmed("os.fstat", fd)
        assert (status.st_dev, status.st_ino, status.st_uid) == (shown.st_dev, shown.st_ino, UID)
        assert shimmed("os.readlink", f"/proc/self/fd/{fd}") == f"{mount.path}/{KEY}"
        assert shimmed("os.statvfs", fd).f_namemax == plain("os.statvfs", plain.path(KEY)).f_namemax
        shimmed("change_below", fd)
        assert sorted(shimmed("os.listdir", fd)) == ["link", "linked", "made", "new", "renamed"]
        assert sorted(os.listdir(store / KEY)) == before
        shimmed("rewind_stream", stream)
        assert shimmed("names_of_stream", stream) == [".", "..", "link", "linked", "made", "new", "renamed"]
        shimmed("os.fchdir", fd)
        assert shimmed("os.getcwd") == f"{mount.path}/{KEY}"
        shimmed("os.chdir", "/")
        shimmed("close_stream", stream)
        with pytest.raises(OSError) as closed:
            shimmed("os.fstat", fd)
        assert closed.value.errno == errno.EBADF
        mount.cli("job", "discard", "j")
        warm(mount, shimmed)


def test_changes_of_a_streams_directory_itself_affect_the_view(mount, shimmed, store):
    stream = open_directly(mount, shimmed, shimmed.path(KEY))
    fd = shimmed("stream_descriptor", stream)
    before = os.stat(store / KEY)
    shimmed("os.fchmod", fd, 0o711)
    shimmed("os.utime", fd, (7, 8))
    after = os.stat(store / KEY)
    assert (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)
    status = shimmed("os.stat", shimmed.path(KEY))
    assert (status.st_mode & 0o777, status.st_mtime) == (0o711, 8)
    shimmed("os.fsync", fd)


def test_a_stream_takes_and_leaves_no_descriptors(mount, shimmed):
    before = shimmed("open_numbers")
    for uses_descriptor in (False, True):
        stream = open_directly(mount, shimmed, shimmed.path(KEY))
        assert shimmed("names_of_stream", stream) == KEY_NAMES
        if uses_descriptor:
            shimmed("stream_descriptor", stream)
        held = set(shimmed("open_numbers")) - set(before)
        assert len(held) == 1 + uses_descriptor
        told = shimmed("subprocess.run", ["/bin/ls", "/proc/self/fd"], close_fds=False, capture_output=True)
        assert not held - {3} & {int(number) for number in told.stdout.split()}  # 3 is opened by ls itself
        shimmed("close_stream", stream)
        assert shimmed("open_numbers") == before


def test_a_forked_child_reads_on_independently_of_its_parent(mount, shimmed):
    stream = open_directly(mount, shimmed, shimmed.path(KEY))
    first = shimmed("names_of_stream", stream, 1)
    assert sorted(first + shimmed("read_in_a_fork", stream)) == KEY_NAMES
    assert sorted(first + shimmed("names_of_stream", stream)) == KEY_NAMES


def test_a_removed_directory_is_not_listed_anew(mount, shimmed, plain):
    stream = open_directly(mount, shimmed, shimmed.path(KEY, "sub"))
    assert shimmed("names_of_stream", stream) == [".", "..", "deep"]
    plain("shutil.rmtree", plain.path(KEY, "sub"))
    with pytest.raises(FileNotFoundError):
        shimmed("open_stream", shimmed.path(KEY, "sub"))
    plain("os.mkdir", plain.path(KEY, "sub"))
    plain.write(f"{KEY}/sub/other", b"of another directory")
    assert names_of(shimmed, shimmed.path(KEY, "sub")) == [".", "..", "other"]
    shimmed("rewind_stream", stream)
    assert "other" not in shimmed("names_of_stream", stream)  # `other` is in the new directory of the same name
    shimmed("close_stream", stream)


def test_many_streams_can_be_open_at_once(mount, shimmed):
    with Count(mount) as count:
        streams = [shimmed("open_stream", shimmed.path(KEY)) for _ in range(200)]
    assert 32 <= count.looks <= 64  # the library's table has no room for more
    for stream in streams:
        assert shimmed("names_of_stream", stream) == KEY_NAMES
        shimmed("close_stream", stream)
    with Count(mount) as count:
        assert names_of(shimmed, shimmed.path(KEY)) == KEY_NAMES
    assert count.looks == 1


def test_a_large_directory_is_listed_whole_and_can_be_sought(mount, shimmed, store):
    (store / "triton/LARGE").mkdir()
    for number in range(3000):
        (store / f"triton/LARGE/a-file-with-a-long-name-{number}").touch()
    stream = open_directly(mount, shimmed, shimmed.path("triton/LARGE"))
    first = shimmed("read_stream", stream, 1500)
    place = shimmed("tell_stream", stream)
    rest = shimmed("read_stream", stream)
    assert {name for name, _, _ in first + rest} == {".", "..", *os.listdir(store / "triton/LARGE")}
    shimmed("stream_descriptor", stream)
    shimmed("seek_stream", stream, place)
    assert shimmed("read_stream", stream) == rest
    shimmed("close_stream", stream)


@pytest.mark.parametrize("mode", [0o700, 0o711, 0o733, 0o750, 0o555])
@pytest.mark.parametrize("group", [0, UID])
def test_the_mount_lists_directories_that_not_everybody_may_read(mount, shimmed, plain, store, mode, group):
    directory = store / "triton/CLOSED"
    directory.mkdir(mode=0o700)
    (directory / "secret").write_bytes(b"x")
    os.chown(directory, 0, group)
    directory.chmod(mode)
    path = shimmed.path("triton/CLOSED")
    wait_until(lambda: plain("os.path.lexists", path))
    with Count(mount) as count:
        listed = shimmed("told", "list_stream", path)
    assert listed == plain("told", "list_stream", path)
    assert count.looks == (1 if mode == 0o555 else 0)
    assert (listed == errno.EACCES) == (mode != 0o555 and (group != UID or mode != 0o750))


def test_a_directory_that_the_job_has_closed_is_closed(mount, shimmed, plain):
    plain("os.chmod", plain.path(KEY), 0o300)
    for directory in (KEY, f"{KEY}/sub"):
        assert shimmed("look", shimmed.path(directory))["listdir"] == plain("look", plain.path(directory))["listdir"]
    assert shimmed("look", shimmed.path(KEY))["listdir"] == "EACCES"


def test_another_user_lists_nothing_of_a_job(mount, shimmed, shimmed_job_of):
    shimmed("write_file", shimmed.path(KEY, "own"), b"x")
    intruder = shimmed_job_of(mount, "j", 20002)  # works in the job uid-20002.j
    for _ in range(3):
        stream = intruder("open_stream", intruder.path(KEY))
        assert intruder("names_of_stream", stream) == KEY_NAMES
        intruder("close_stream", stream)


def test_a_stream_goes_over_to_a_larger_filter(mount, shimmed, plain):
    stream = open_directly(mount, shimmed, shimmed.path(KEY))
    rewound = open_directly(mount, shimmed, shimmed.path(KEY))
    assert shimmed("names_of_stream", rewound) == KEY_NAMES
    plain("os.makedirs", plain.path("triton/MANY"))
    plain("fill_directory", plain.path("triton/MANY"), 600)
    shimmed("rewind_stream", rewound)
    for one in (stream, rewound):
        assert shimmed("names_of_stream", one) == KEY_NAMES
        fd = shimmed("stream_descriptor", one)
        assert shimmed("os.readlink", f"/proc/self/fd/{fd}") == f"{mount.path}/{KEY}"
        shimmed("close_stream", one)


def test_a_stream_outlives_its_job_and_its_daemon(mount, shimmed):
    stream = open_directly(mount, shimmed, shimmed.path(KEY))
    mount.end_job("j", "failure")
    assert shimmed("names_of_stream", stream) == KEY_NAMES
    shimmed("close_stream", stream)
    warm(mount, shimmed)
    left = open_directly(mount, shimmed, shimmed.path(KEY))
    assert mount.unmount().returncode == 0
    mount.mount()
    warm(mount, shimmed)
    shimmed.write(f"{KEY}/n", b"new")
    assert shimmed("names_of_stream", left) == KEY_NAMES
    assert names_of(shimmed, shimmed.path(KEY)) == [".", "..", "file", "n", "sub"]
    shimmed("rewind_stream", left)
    shimmed("close_stream", left)


def test_a_daemon_that_is_killed_ends_no_listing(mount, shimmed):
    streams = [open_directly(mount, shimmed, shimmed.path(KEY)) for _ in range(2)]
    assert shimmed("names_of_stream", streams[0], 1)
    mount.kill_daemon()
    shimmed("names_of_stream", streams[0])
    assert shimmed("names_of_stream", streams[1]) == KEY_NAMES
    with pytest.raises(OSError):
        shimmed("open_stream", shimmed.path("other/directory"))
    mount.detach()


def test_in_a_chroot_no_other_directory_takes_a_streams_place(mount, scratch, shimmed_job_of):
    process = warm(mount, shimmed_job_of(mount, "r", 0))
    stream = open_directly(mount, process, process.path(KEY))
    view = process.view(KEY)
    (scratch / "root" / view.lstrip("/")).mkdir(parents=True)
    (scratch / "root" / view.lstrip("/") / "of the chroot").touch()
    process.write(f"{KEY}/n", b"new")
    process("os.chroot", str(scratch / "root"))
    assert process("names_of_stream", stream) == KEY_NAMES
    with pytest.raises(FileNotFoundError):
        process("open_stream", process.path("other/directory"))


ENDS = """
import ctypes, errno, os, sys
libc, path = ctypes.CDLL(None, use_errno=True), sys.argv[1].encode()
libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
for i in range(30): os.path.exists(path)
def opened():
    stream = ctypes.c_void_p(libc.opendir(path))
    assert stream and libc.readdir(stream)
    return stream
"""
WAYS = {
    "close_range": "s = opened(); libc.dirfd(s); assert libc.close_range(3, 499, 0) == 0\n"
                   "assert libc.closedir(s) == -1 and ctypes.get_errno() == errno.EBADF",
    "closefrom": "s = opened(); libc.closefrom(3); assert libc.closedir(s) == -1",
    "vfork and exec": "s = opened()\nassert os.spawnlp(os.P_WAIT, 'true', 'true') == 0\n"
                      "import subprocess\nsubprocess.run(['true'], check=True)\n"
                      "assert libc.readdir(s) and libc.closedir(s) == 0",
    "getdents by number": "s = opened(); out = ctypes.create_string_buffer(4096)\n"
                          "got = libc.syscall(217, ctypes.c_long(libc.dirfd(s)), out, ctypes.c_long(4096))\n"
                          "assert got > 0 and b'file' in out.raw[:got]\nassert libc.closedir(s) == 0",
    "without descriptors": "import resource\ns = opened()\n"
                           "resource.setrlimit(resource.RLIMIT_NOFILE, (0, 3))\n"
                           "os.fstat(libc.dirfd(s))\nassert libc.closedir(s) == 0\n"
                           "assert not libc.opendir(path) and ctypes.get_errno() == errno.EMFILE",
    "an inotify watch": "s = opened(); fd = libc.inotify_init1(os.O_NONBLOCK)\n"
                        "assert libc.inotify_add_watch(fd, b'/proc/self/fd/%d' % libc.dirfd(s), 0x100) >= 0\n"
                        "os.mkdir(path.decode() + '/made')\nassert os.read(fd, 4096)",
    "streams elsewhere": "s = opened()\nfor i in range(200):\n"
                         "  t = ctypes.c_void_p(libc.opendir(b'/')); assert libc.readdir(t)\n"
                         "  u = opened(); assert libc.closedir(t) == 0 and libc.closedir(u) == 0",
    "nothing": "assert libc.closedir(None) == -1 and ctypes.get_errno() == errno.EINVAL\n"
               "s = opened(); assert libc.closedir(None) == -1 and ctypes.get_errno() == errno.EINVAL",
    "listings by eight threads": "import threading\ndef work():\n  for i in range(300):\n"
                                 "    assert sorted(os.listdir(path)) == [b'file', b'sub']\n"
                                 "all = [threading.Thread(target=work) for _ in range(8)]\n"
                                 "[t.start() for t in all]; [t.join() for t in all]",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls by their numbers")
@pytest.mark.parametrize("way", WAYS)
def test_streams_and_other_calls_do_not_disturb_each_other(mount, shimmed, way):
    with Count(mount) as count:
        done = shimmed("subprocess.run", [PYTHON, "-Ic", f"{ENDS}{WAYS[way]}", shimmed.path(KEY)],
                       capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert count.looks > 20


def test_a_process_that_filters_its_calls_reads_on(mount, shimmed):
    code = ENDS + """
import struct
s, t = opened(), ctypes.c_void_p(libc.opendir(path))
os.mkdir(path.decode() + '/made')
code = b''.join(struct.pack('=HBBI', *one) for one in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 332), (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7fff0000)))
text = ctypes.create_string_buffer(code)
program = struct.pack('HxxxxxxP', 4, ctypes.addressof(text))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
for stream in (s, t):
    assert libc.readdir(stream) and libc.dirfd(stream) > 2 and libc.closedir(stream) == 0
os._exit(0)
"""
    done = shimmed("subprocess.run", [PYTHON, "-Ic", code, shimmed.path(KEY)], capture_output=True)
    assert done.returncode == 0, done


def test_a_directory_changed_while_it_is_opened_is_listed_as_the_view(mount, turns, plain):
    process = warm(mount, turns.job("j", UID))
    for moment, call in itertools.product(("before", "after"), ("list_stream", "scan")):
        with turns.held(process, moment, KEY, call, process.path(KEY)):
            plain.write(f"{KEY}/new", b"new")
        assert "new" in [name for name, _, _ in process.result()]
        mount.cli("job", "discard", "j")
        warm(mount, process)


def test_no_process_lists_the_base_after_a_change_was_reported(race, store):
    many = 400
    (store / "triton/RACE").mkdir()
    for number in range(many):
        (store / f"triton/RACE/{number}").mkdir()
    race.run("fill_in_turn", "check_filled", "triton/RACE", many, {"last", "earlier", "opened before"})
