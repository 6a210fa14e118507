# SPDX-License-Identifier: Apache-2.0
"""st_mtime and st_ctime of files that are written through a mapping (xfstests generic/080, /215).

If a file has passthrough, as `new` has, the kernel maps the backing file, so the first write changes the times, as on a
local file system. The kernel reports writes to other files at msync(2), munmap(2) and close(2).
"""

import mmap
import os
import re
import subprocess
import sys
import time

import pytest
from jobs import wait_until

OLD = 1_000_000_000  # seconds since 1970
SIZE = 4 * mmap.PAGESIZE

KERNEL = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())
PASSTHROUGH = pytest.mark.skipif(KERNEL < (6, 9), reason="FUSE passthrough came with Linux 6.9")


@pytest.fixture
def mounted(overlay):
    (overlay.lowers[0] / "lower").write_bytes(b"x" * SIZE)
    (overlay.upper / "upper").write_bytes(b"x" * SIZE)
    overlay.mount()
    (overlay.path / "new").write_bytes(b"x" * SIZE)
    return overlay


def make_old(path):
    """Sets an old st_mtime, and lets the kernel cache it. Returns st_ctime."""
    os.utime(path, (OLD, OLD))
    status = os.stat(path)
    assert status.st_mtime == OLD
    time.sleep(0.02)  # more than one tick of the file system's clock
    return status.st_ctime_ns


class Mapping:
    """A shared mapping of a file. The mapping stays when its descriptor is closed."""

    def __init__(self, path, keeps_descriptor=False, flags=0):
        self._fd = os.open(path, os.O_RDWR | flags, 0o644)
        if flags & os.O_CREAT:
            os.truncate(self._fd, SIZE)
        self._map = mmap.mmap(self._fd, SIZE)
        if not keeps_descriptor:
            self.close_descriptor()

    def close_descriptor(self):
        os.close(self._fd)
        self._fd = None

    def write(self, page=0, msync=False):
        self._map[page * mmap.PAGESIZE] = 64 + page
        if msync:
            self._map.flush()

    def close(self):
        self._map.close()
        if self._fd is not None:
            self.close_descriptor()


def assert_changed(path, before):
    status = os.stat(path)
    assert status.st_mtime > OLD
    assert status.st_ctime_ns > before


@PASSTHROUGH
@pytest.mark.parametrize("keeps_descriptor", [True, False], ids=["open", "closed"])
def test_the_first_write_changes_the_times_at_once(mounted, keeps_descriptor):
    path = mounted.path / "new"
    mapping = Mapping(path, keeps_descriptor)
    before = make_old(path)
    mapping.write()
    assert_changed(path, before)
    mapping.close()
    assert os.stat(path).st_mtime > OLD


@pytest.mark.parametrize("name", ["new", "upper", "lower"])
@pytest.mark.parametrize("keeps_descriptor", [True, False], ids=["open", "closed"])
@pytest.mark.parametrize("msync", [True, False], ids=["msync", "munmap"])
def test_msync_and_munmap_leave_no_old_times(mounted, name, keeps_descriptor, msync):
    path = mounted.path / name
    mapping = Mapping(path, keeps_descriptor)
    before = make_old(path)
    mapping.write(msync=msync)
    if not msync:
        mapping.close()
    assert_changed(path, before)


@PASSTHROUGH
def test_attributes_known_before_the_open_do_not_stay(mounted):
    path = mounted.path / "new"
    before = make_old(path)
    mapping = Mapping(path, keeps_descriptor=True)
    mapping.write()
    assert_changed(path, before)
    mapping.close()


@PASSTHROUGH
def test_a_file_that_is_being_made_changes_as_well(mounted):
    path = mounted.path / "made"
    mapping = Mapping(path, keeps_descriptor=True, flags=os.O_CREAT)
    before = make_old(path)
    mapping.write()
    assert_changed(path, before)
    mapping.close()


@PASSTHROUGH
def test_fstat_of_an_unlinked_file_shows_the_write(mounted):
    path = mounted.path / "new"
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, SIZE) as mapped:
        os.unlink(path)
        os.utime(fd, (OLD, OLD))
        assert os.fstat(fd).st_mtime == OLD
        time.sleep(0.02)
        mapped[0] = 65
        assert os.fstat(fd).st_mtime > OLD
    os.close(fd)


def test_a_mapping_of_another_process_that_has_closed_its_descriptor_counts(mounted):
    """Each write after an msync changes the times again."""
    path = mounted.path / "new"
    code = ("import mmap, os, sys\n"
            "fd = os.open(sys.argv[1], os.O_RDWR)\n"
            "mapped = mmap.mmap(fd, 0)\n"
            "os.close(fd)\n"
            "print('ready', flush=True)\n"
            "for line in sys.stdin:\n"
            "    mapped[0] = 65\n"
            "    mapped.flush()\n"
            "    print('written', flush=True)\n")
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "ready\n"
        for _ in range(3):
            before = make_old(path)
            writer.stdin.write("\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "written\n"
            assert_changed(path, before)
        writer.stdin.close()
        writer.wait(20)


@PASSTHROUGH
def test_the_kernel_keeps_attributes_again_once_nobody_can_write(mounted):
    """The test changes the file's time in the upper directory, which causes no invalidation. If a stat in the mount
    then still shows the old time, the kernel has cached the attributes."""
    path = mounted.path / "new"
    mapping = Mapping(path, keeps_descriptor=True)
    ages = iter(range(OLD, OLD + 1000))

    def keeps_attributes():
        os.stat(path)
        age = next(ages)
        os.utime(mounted.upper / "new", (age, age))
        return os.stat(path).st_mtime != age

    assert not keeps_attributes()
    mapping.close_descriptor()
    assert not keeps_attributes()  # the mapping still exists
    mapping.close()
    wait_until(keeps_attributes, what="attributes that the kernel keeps")


@PASSTHROUGH
def test_the_kernel_keeps_attributes_of_files_that_are_only_written_to_by_calls(mounted):
    path = mounted.path / "new"
    fd = os.open(path, os.O_WRONLY)
    os.stat(path)
    os.utime(mounted.upper / "new", (OLD, OLD))
    assert os.stat(path).st_mtime != OLD
    os.close(fd)
