# SPDX-License-Identifier: Apache-2.0
"""st_ino of copied-up objects in a plain overlay: before the change, after it, and after a remount."""

import os
import stat

import mounts
import pytest


@pytest.fixture
def filled(overlay):
    """A lower with a file, a symlink, a FIFO, two names of one file, and a directory that contains a file."""
    lower = overlay.lowers[0]
    for name in ("file", "renamed", "one"):
        (lower / name).write_text(name)
    os.link(lower / "one", lower / "two")
    os.symlink("file", lower / "symlink")
    os.mkfifo(lower / "fifo", 0o600)
    (lower / "directory/below").mkdir(parents=True)
    (lower / "directory/below/file").write_text("x")
    return overlay.mount()


def numbers(directory):
    """Returns st_ino by path; verifies that each listing agrees with stat."""
    found = {}
    for path, directories, files in os.walk(directory):
        listed = {entry.name: entry.inode() for entry in os.scandir(path)}
        for name in (*directories, *files):
            full = os.path.join(path, name)
            found[os.path.relpath(full, directory)] = os.lstat(full).st_ino
            assert listed[name] == os.lstat(full).st_ino, full
    return found


def remount(overlay, *options):
    result = overlay.unmount()
    assert result.returncode == 0, result.stderr
    overlay.mount(*options)


def copy_all_up(directory):
    (directory / "file").write_text("changed")
    os.utime(directory / "symlink", (1, 1), follow_symlinks=False)
    os.chmod(directory / "fifo", 0o644)
    (directory / "two").write_text("changed")
    os.chmod(directory / "directory", 0o700)
    os.chmod(directory / "directory/below/file", 0o600)


def test_copies_keep_their_numbers_over_remounts(filled):
    before = numbers(filled.path)
    assert before["one"] == before["two"]
    copy_all_up(filled.path)
    assert numbers(filled.path) == before
    for _ in range(2):
        remount(filled)
        assert numbers(filled.path) == before
    assert numbers(filled.upper)["file"] != before["file"]


def test_renamed_copies_keep_their_numbers_over_remounts(filled):
    before = numbers(filled.path)
    os.rename(filled.path / "renamed", filled.path / "directory/moved")
    os.rename(filled.path / "directory", filled.path / "elsewhere")
    os.rename(filled.path / "symlink", filled.path / "link")
    remount(filled)
    after = numbers(filled.path)
    for old, new in (("renamed", "elsewhere/moved"), ("directory", "elsewhere"),
                     ("directory/below", "elsewhere/below"), ("symlink", "link"),
                     ("directory/below/file", "elsewhere/below/file")):
        assert after[new] == before[old], new


def test_numbers_stay_when_the_daemon_is_killed(filled):
    before = numbers(filled.path)
    copy_all_up(filled.path)
    for pid in mounts.processes_naming(str(filled.work)):
        os.kill(pid, 9)
    mounts.run("umount", "-l", filled.path)
    filled.mount()
    assert numbers(filled.path) == before


def test_new_objects_do_not_take_the_numbers_of_removed_copies(filled):
    before = numbers(filled.path)
    copy_all_up(filled.path)
    for name in ("file", "symlink", "fifo", "one", "two"):
        os.unlink(filled.path / name)
    for number in range(50):
        (filled.path / f"new{number}").write_text("x")
    remount(filled)
    after = numbers(filled.path)
    taken = {before[name] for name in ("file", "symlink", "fifo", "one")}
    assert not taken & {after[f"new{number}"] for number in range(50)}
    assert len(set(after.values())) == len(after)


def test_records_are_removed_with_their_copies(filled):
    copy_all_up(filled.path)
    for name in ("file", "symlink", "fifo", "one", "two", "directory/below/file"):
        os.unlink(filled.path / name)
    os.rmdir(filled.path / "directory/below")
    os.rmdir(filled.path / "directory")
    remount(filled)
    assert (filled.work / "work/origins").read_text() == ""


def test_several_file_systems_number_alike_at_each_mount(program, scratch):
    overlay = mounts.Overlay(scratch, lowers=3)
    try:
        for lower in overlay.lowers:
            mounts.run("mount", "-t", "tmpfs", "tmpfs", lower, check=True)
            (lower / lower.name).write_text("x")
            (lower / "directory").mkdir()
        overlay.mount()
        before = numbers(overlay.path)
        for lower in overlay.lowers:
            (overlay.path / lower.name).write_text("changed")
        remount(overlay)
        os.stat(overlay.path / "lower2")  # look up the names in a different order
        os.stat(overlay.path / "lower1")
        assert numbers(overlay.path) == before
    finally:
        overlay.close()
        for lower in overlay.lowers:
            mounts.run("umount", "-l", lower)


def test_a_job_keeps_its_inode_numbers_with_another_daemon(store, mount_store, job_of):
    (store / "pip").mkdir()
    (store / "pip/file").write_text("base")
    mount = mount_store(store)
    job = job_of(mount, "uid-20001", 20001)
    before = job("os.stat", job.path("pip/file"))
    job.write("pip/file", b"changed")
    job.close()
    mount.unmount()
    mount.mount()
    again = job_of(mount, "uid-20001", 20001)
    assert again.read("pip/file") == b"changed"
    assert again("os.stat", again.path("pip/file"))[stat.ST_INO] == before[stat.ST_INO]
