# SPDX-License-Identifier: Apache-2.0
"""Changes to any lower of a plain overlay by processes outside the mount become visible through invalidations.

The kernel caches names for a minute, so a change that is visible within seconds was invalidated.
"""

import contextlib
import os
import subprocess

import mounts
import pytest
from jobs import open_files, wait_until
from mounts import setting
from test_freshness import SECONDS

LOWERS = 3
TOP, BOTTOM = 0, LOWERS - 1


def is_watched_by(mode, overlay):
    """Returns true if the overlay's daemon uses the kernel interface `mode`, and not the other one."""
    kinds = set()
    for daemon in mounts.processes_naming(str(overlay.path)):
        for file in open_files(daemon):
            kinds.add(file.removeprefix("anon_inode:").strip("[]"))
    return kinds & {"fanotify", "inotify"} == {mode}


@pytest.fixture(params=["fanotify", "inotify"])
def mode(request):
    return request.param


@pytest.fixture
def mount(mode):
    """mount(overlay) mounts an overlay. Its daemon watches the lowers with the kernel interface `mode`."""
    def mount_watched(overlay):
        with contextlib.ExitStack() as limits:
            if mode == "inotify":
                limits.enter_context(setting("/proc/sys/fs/fanotify/max_user_groups", "0"))
            overlay.mount()
            wait_until(lambda: is_watched_by(mode, overlay), what=f"a watch by {mode}")

    return mount_watched


@pytest.fixture(params=["one", "two"])
def layout(request):
    return request.param


@pytest.fixture
def stack(program, scratch, mode, mount, layout):
    """Several lowers, on one file system or on two, each with its own file in `directory`."""
    overlay = mounts.Overlay(scratch, lowers=LOWERS)
    if layout == "two":
        subprocess.run(["mount", "-t", "tmpfs", "none", overlay.lowers[BOTTOM]], check=True)
    for number, lower in enumerate(overlay.lowers):
        (lower / "directory").mkdir()
        (lower / "directory" / f"file{number}").write_text(f"old {number}")
        (lower / "directory/same").write_text(f"same {number}")
    for number in (TOP, BOTTOM):
        (overlay.lowers[number] / f"only{number}").mkdir()
    mount(overlay)
    directory = overlay.path / "directory"
    assert sorted(os.listdir(directory)) == ["file0", "file1", "file2", "same"]
    assert sorted(os.listdir(overlay.path)) == ["directory", "only0", "only2"]
    for number in range(LOWERS):
        assert (directory / f"file{number}").read_text() == f"old {number}"
    assert (directory / "same").read_text() == "same 0"
    for missing in ("directory/new", "new", f"only{TOP}/new", f"only{BOTTOM}/new", "directory/sub/new"):
        assert not (overlay.path / missing).exists()
    yield overlay
    overlay.close()


@pytest.fixture(params=[TOP, BOTTOM], ids=["top", "bottom"])
def lower(request, stack):
    """The lower that the test changes."""
    path = stack.lowers[request.param]
    return path, request.param


def seen(what, condition):
    wait_until(condition, SECONDS, what)


def reads(path, text):
    try:
        return path.read_text() == text
    except FileNotFoundError:
        return False


def test_a_new_file_is_seen_where_there_was_none(stack, lower):
    path, number = lower
    for name in ("directory/new", "new", f"only{number}/new"):
        (path / name).write_text("new")
        seen(name, lambda name=name: reads(stack.path / name, "new"))
    seen("the listing", lambda: "new" in os.listdir(stack.path / "directory"))


def test_a_replaced_file_is_read_anew(stack, lower):
    path, number = lower
    (path / "tmp").write_text("another one")
    os.rename(path / "tmp", path / f"directory/file{number}")
    seen("the new file", lambda: reads(stack.path / f"directory/file{number}", "another one"))


def test_a_removed_file_is_gone(stack, lower):
    path, number = lower
    (path / f"directory/file{number}").unlink()
    seen("the removal", lambda: not (stack.path / f"directory/file{number}").exists())
    seen("the listing", lambda: f"file{number}" not in os.listdir(stack.path / "directory"))


def test_changed_data_and_attributes_are_seen(stack, lower):
    path, number = lower
    raw, shown = path / f"directory/file{number}", stack.path / f"directory/file{number}"
    with open(raw, "a", encoding="utf-8") as file:
        file.write(" and more")
    seen("the data", lambda: reads(shown, f"old {number} and more"))
    raw.chmod(0o640)
    os.utime(raw, ns=(1, 1_000_000_123))
    seen("the mode", lambda: shown.stat().st_mode & 0o777 == 0o640)
    seen("the time", lambda: shown.stat().st_mtime_ns == 1_000_000_123)


def test_a_directory_that_comes_into_another_lower_brings_its_files(stack):
    """Before the change, only the other lower has a directory of that name, and the kernel has looked it up."""
    for number, other in ((TOP, BOTTOM), (BOTTOM, TOP)):
        directory = stack.lowers[number] / f"only{other}"
        directory.mkdir()
        (directory / "new").write_text("new")
        seen("its file", lambda other=other: reads(stack.path / f"only{other}/new", "new"))
        (directory / "later").write_text("later")
        seen("a later one", lambda other=other: reads(stack.path / f"only{other}/later", "later"))


def test_a_directory_that_goes_and_comes_again_brings_its_files(stack, lower):
    path, number = lower
    for name in (f"file{number}", "same"):
        (path / "directory" / name).unlink()
    (path / "directory").rmdir()
    seen("the removal", lambda: not (stack.path / f"directory/file{number}").exists())
    assert not (stack.path / "directory/again").exists()
    (path / "directory").mkdir()
    (path / "directory/again").write_text("again")
    seen("the new file", lambda: reads(stack.path / "directory/again", "again"))


def test_hidden_objects_are_seen_when_the_top_file_is_removed(stack):
    (stack.lowers[TOP] / "directory/same").unlink()
    seen("the middle one", lambda: reads(stack.path / "directory/same", "same 1"))
    (stack.lowers[1] / "directory/same").unlink()
    seen("the last one", lambda: reads(stack.path / "directory/same", "same 2"))


def test_markers_hide_and_show_at_once(stack):
    top = stack.lowers[TOP] / "directory"
    (top / ".wh.file2").touch()
    seen("the whiteout", lambda: not (stack.path / "directory/file2").exists())
    (top / ".wh.file2").unlink()
    seen("its end", lambda: (stack.path / "directory/file2").exists())
    (top / ".wh..wh..opq").touch()
    seen("the opaque directory",
         lambda: sorted(os.listdir(stack.path / "directory")) == ["file0", "same"])
    seen("what it hides", lambda: not (stack.path / "directory/file1").exists())


@pytest.mark.parametrize("layout", ["one"], indirect=True)
def test_a_moved_directory_shows_what_lies_there_now(stack, lower):
    path, number = lower
    (path / "other").mkdir()
    (path / f"other/file{number}").write_text("other")
    os.rename(path / "directory", path / "away")
    os.rename(path / "other", path / "directory")
    seen("the other's file", lambda: reads(stack.path / f"directory/file{number}", "other"))
    (path / "directory/new").write_text("late")
    seen("a later file", lambda: reads(stack.path / "directory/new", "late"))


def test_changes_of_nested_lowers_are_reported_for_both(program, scratch, mount):
    overlay = mounts.Overlay(scratch, lowers=1)
    outer = overlay.lowers[0]
    inner = outer / "inner"
    inner.mkdir()
    overlay.lowers = [inner, outer]
    try:
        mount(overlay)
        for missing in ("new", "inner/new"):
            assert not (overlay.path / missing).exists()
        (inner / "new").write_text("new")
        for name in ("new", "inner/new"):
            seen(name, lambda name=name: reads(overlay.path / name, "new"))
    finally:
        overlay.close()


def test_a_bound_lower_is_reported_by_its_own_path(program, scratch, mount):
    """One lower is a bind mount, so the daemon watches two mounts of one file system. A changed directory has a
    different path in each mount, and the daemon must find the path below the lower."""
    overlay = mounts.Overlay(scratch, lowers=2)
    hidden = scratch / "hidden"
    hidden.mkdir()
    subprocess.run(["mount", "--bind", hidden, overlay.lowers[1]], check=True)
    try:
        mount(overlay)
        for number, raw in enumerate((overlay.lowers[0], hidden)):
            assert not (overlay.path / f"new{number}").exists()
            (raw / f"new{number}").write_text("new")
            seen(f"new{number}", lambda name=f"new{number}": reads(overlay.path / name, "new"))
    finally:
        overlay.close()
