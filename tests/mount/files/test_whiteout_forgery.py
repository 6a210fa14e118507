# SPDX-License-Identifier: Apache-2.0
"""No user can create, through a mount, an object that hides names in a layer or in another lower."""

import ctypes
import errno
import os
import stat

import mounts
import pytest
from jobs import PYTHON, as_user

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4

MARKERS = [".wh.file", ".wh..wh..opq", ".wh.", ".wh..wh.long.0123456789abcdef0123456789abcdef"]


@pytest.fixture
def filled(overlay):
    (overlay.lowers[0] / "file").write_text("lower")
    (overlay.lowers[0] / "directory").mkdir()
    overlay.path.chmod(0o777)
    overlay.upper.chmod(0o777)
    return overlay.mount()


def renameat2(source, target, flags):
    result = libc.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flags)
    if result == -1:
        raise OSError(ctypes.get_errno(), "renameat2")


def link_nameless(directory, name):
    """Creates an unnamed file with O_TMPFILE, and links it with linkat(2)."""
    fd = os.open(directory, os.O_TMPFILE | os.O_WRONLY)
    try:
        if libc.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, os.fsencode(name),
                       AT_SYMLINK_FOLLOW) == -1:
            raise OSError(ctypes.get_errno(), "linkat")
    finally:
        os.close(fd)


def errno_of(call, *args, **options):
    with pytest.raises(OSError) as refused:
        call(*args, **options)
    return refused.value.errno


def markers_in(directory):
    """Returns the reserved names, character devices and overlay attributes below `directory`, which may hide names."""
    found = []
    for path, directories, files in os.walk(directory):
        for name in (*directories, *files):
            full = os.path.join(path, name)
            if name.startswith(".wh.") or stat.S_ISCHR(os.lstat(full).st_mode):
                found.append(full)
            found += [attribute for attribute in os.listxattr(full, follow_symlinks=False)
                      if ".overlay." in attribute]
    return found


def test_a_device_0_0_is_refused_as_by_overlayfs(filled):
    path = filled.path / "device"
    assert errno_of(os.mknod, path, stat.S_IFCHR | 0o600, os.makedev(0, 0)) == errno.EPERM
    os.mknod(filled.path / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.unlink(filled.path / "null")
    assert markers_in(filled.upper) == []


def test_a_device_0_0_is_refused_to_users_who_need_no_right_for_it(filled):
    code = ("import errno, os, stat, sys\n"
            "try:\n"
            "    os.mknod(sys.argv[1], stat.S_IFCHR | 0o600, 0)\n"
            "except OSError as error:\n"
            "    print(errno.errorcode[error.errno])\n")
    result = as_user(20001, [PYTHON, "-I", "-c", code, filled.path / "device"])
    assert result.stdout == "EPERM\n", result.stderr
    assert markers_in(filled.upper) == []


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize("directory", ["", "directory"])
def test_reserved_names_are_refused_by_every_call(filled, directory, marker):
    name, file = filled.path / directory / marker, filled.path / "file"
    (filled.path / "own").write_text("x")
    (filled.path / "own-directory").mkdir()
    refusals = {
        "open": errno_of(os.open, name, os.O_WRONLY | os.O_CREAT),
        "open O_EXCL": errno_of(os.open, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL),
        "mkdir": errno_of(os.mkdir, name),
        "mknod": errno_of(os.mknod, name),
        "mkfifo": errno_of(os.mkfifo, name),
        "symlink": errno_of(os.symlink, "file", name),
        "link": errno_of(os.link, file, name),
        "linkat": errno_of(link_nameless, filled.path, name),
        "rename": errno_of(os.rename, filled.path / "own", name),
        "rename of a directory": errno_of(os.rename, filled.path / "own-directory", name),
        "rename of a lower's": errno_of(os.rename, file, name),
        "noreplace": errno_of(renameat2, filled.path / "own", name, RENAME_NOREPLACE),
    }
    assert refusals == dict.fromkeys(refusals, errno.EPERM)
    assert errno_of(renameat2, file, name, RENAME_EXCHANGE) in (errno.EPERM, errno.ENOENT)
    assert errno_of(os.stat, name) == errno.ENOENT
    assert file.read_text() == "lower"
    assert markers_in(filled.upper) == []


def test_rename_leaves_no_whiteout_of_the_kernels(filled):
    (filled.path / "own").write_text("x")
    for source in ("own", "file"):
        for flags in (RENAME_WHITEOUT, RENAME_WHITEOUT | RENAME_NOREPLACE):
            assert errno_of(renameat2, filled.path / source, filled.path / "to",
                            flags) == errno.EINVAL
    assert markers_in(filled.upper) == []


@pytest.mark.parametrize("attribute", ["user.overlay.opaque", "user.overlay.redirect",
                                       "user.overlay.whiteout", "trusted.overlay.opaque"])
def test_attributes_of_overlayfs_are_refused(filled, attribute):
    directory = filled.path / "directory"
    assert errno_of(os.setxattr, directory, attribute, b"y") == errno.EOPNOTSUPP
    assert errno_of(os.getxattr, directory, attribute) == errno.EOPNOTSUPP
    assert markers_in(filled.upper) == []


def test_an_opaque_directory_of_a_lower_is_copied_up_without_its_mark(program, scratch):
    """With the mark, the copy would hide the original directory in an overlay that uses this upper as its top lower."""
    overlay = mounts.Overlay(scratch, lowers=2)
    top = overlay.lowers[0] / "directory"
    top.mkdir()
    (top / "file").write_text("x")
    os.setxattr(top, "user.overlay.opaque", b"y")
    os.setxattr(top, "user.other", b"z")
    try:
        overlay.mount()
        (overlay.path / "directory/new").write_text("x")
        assert os.listxattr(overlay.path / "directory") == ["user.other"]
        assert markers_in(overlay.upper) == []
        assert os.getxattr(overlay.upper / "directory", "user.other") == b"z"
    finally:
        overlay.close()


def test_a_job_cannot_create_whiteouts(mount, job_of):
    job = job_of(mount, "one", 20001)
    job("os.makedirs", job.path("pip/directory"))
    for path in (job.path("pip/device"), job.path("pip/directory/device")):
        with pytest.raises(OSError) as refused:
            job("os.mknod", path, stat.S_IFCHR | 0o600, 0)
        assert refused.value.errno == errno.EPERM
    for marker in MARKERS:
        with pytest.raises(OSError) as refused:
            job("os.mkdir", job.path(f"pip/{marker}"))
        assert refused.value.errno == errno.EPERM
