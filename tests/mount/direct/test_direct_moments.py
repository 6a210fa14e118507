# SPDX-License-Identifier: Apache-2.0
"""Changes that happen during a process's call, or while a process runs for days."""

import errno
import struct

import pytest
from direct import KEY, UID, Count, opens_as_the_views_directory, warm
from jobs import PYTHON, wait_until

HOURS = 3600
BASE_CHANGES = 56  # the byte offset of base_changes in MountPage (common/direct_page.h)


def base_changes(mount):
    return struct.unpack_from("<Q", (mount.run_directory() / "state").read_bytes(), BASE_CHANGES)[0]


def test_a_file_that_a_directory_replaces_during_an_open(mount, base,
                                                                                       turns):
    process = warm(mount, turns.job("j", UID))
    path = process.path(KEY, "file")
    with turns.held(process, "after", "KEY/file", "read_file", path):
        for change in ((base / KEY / "file").unlink, (base / KEY / "file").mkdir):
            before = base_changes(mount)
            change()
            wait_until(lambda: base_changes(mount) > before)
    assert process.result() == b"of the base"
    wait_until(lambda: opens_as_the_views_directory(process, path))
    assert not (base / KEY / "file/mine").exists()


def test_a_running_process_reports_the_use_of_a_file_every_day(mount, turns):
    process = warm(mount, turns.job("j", UID))
    for late, opens in ((0, 1), (0, 1), (23 * HOURS, 1), (25 * HOURS, 0), (25 * HOURS, 1)):
        turns.be_late(late)
        with Count(mount) as count:
            assert process.read(f"{KEY}/file") == b"of the base"
        assert count.opens == opens, late


@pytest.mark.parametrize("file", ["views/k", "counters/k"])
def test_root_keeps_its_view_when_the_jobs_user_arrives(
        mount, turns, job_of, file):
    root = turns.job("k", 0)
    path = root.path(KEY, "file")
    root.exists("none")  # this lookup begins the job
    with turns.held(root, "before", file, "look", path):
        user = job_of(mount, "k", UID)
        assert user.read(f"{KEY}/file") == b"of the base"
        user.write(f"{KEY}/users", b"the user's own")
    root.result()
    for _ in range(40):
        assert root("os.stat", path).st_uid == 0
        assert not root.exists(f"{KEY}/users")


def test_fstat_with_an_unknown_version_fails(mount, turns):
    process = warm(mount, turns.job("j", UID))
    with Count(mount) as count:
        fd = process("hold", process.path(KEY, "file"))
    assert count.opens == 1
    process("call_libc", "fstat_to_the_stack", 1, fd)
    with pytest.raises(OSError) as refused:
        process("call_libc", "fstat_to_the_stack", 2, fd)
    assert refused.value.errno == errno.EINVAL


PROLOGUE = """
import ctypes, fcntl, os, sys, threading, time
path, other, turns = sys.argv[1:]
fd = os.open(other, os.O_RDONLY)
def look(times):
    for i in range(times):
        assert os.path.exists(path) and not os.path.exists(path + 'x')
def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)
def held_while(moment, name, call):
    os.symlink(name, f'{turns}/{moment}')
    thread = threading.Thread(target=call)
    thread.start()
    wait_for(lambda: os.path.lexists(f'{turns}/held'))
    yield
    os.unlink(f'{turns}/held')
    thread.join()
def is_ours():
    return os.readlink('/proc/self/fd/500') == other
"""


def run_code(turns, scratch, code):
    """Runs PROLOGUE and then `code` in a new Python process of job j. There, `path` is a file of the base, and `other`
    is a directory outside the mount that contains a file with the same name and different content."""
    process = warm(turns.mount, turns.job("j", UID))
    other = scratch / "elsewhere"
    (other / KEY).mkdir(parents=True)
    (other / KEY / "file").write_bytes(b"of elsewhere")
    words = [PYTHON, "-Ic", PROLOGUE + code, process.path(KEY, "file"), str(other), str(turns.directory)]
    done = process("subprocess.run", words, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_a_file_that_takes_the_held_directorys_number_during_a_call_is_not_used(turns, scratch):
    run_code(turns, scratch, """
look(100)
assert os.readlink('/proc/self/fd/500').endswith('/base')
got = []
for _ in held_while('before', 'KEY/file', lambda: got.append(open(path, 'rb').read())):
    os.dup2(fd, 500)
assert got == [b'of the base'], got
assert is_ours()
""")


def test_a_number_that_the_program_reuses_while_the_directory_is_opened_stays_the_programs(turns, scratch):
    run_code(turns, scratch, """
for _ in held_while('looked', '500', lambda: look(100)):
    os.dup2(fd, 500)
assert is_ours()
look(100)
os.close(500)
look(100)
""")


def test_the_child_of_a_vfork_holds_no_directory_for_its_parent(turns, scratch):
    run_code(turns, scratch, """
look(30)
ctypes.CDLL(None).look_in_a_vfork(path.encode(), 10)
assert fcntl.fcntl(fd, fcntl.F_DUPFD, 500) == 500
look(100)
os.close(500)
""")
