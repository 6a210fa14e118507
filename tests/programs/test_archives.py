# SPDX-License-Identifier: Apache-2.0
"""tar and rsync copy into a view and out of it without loss: modes, times in nanoseconds, links, holes."""

import os

import places
import pytest
import workers

# Without --modify-window=-1, rsync compares only the seconds of times.
RSYNC = ["rsync", "-aHXS", "--checksum", "--itemize-changes", "--modify-window=-1"]
TAR = ["--format=posix", "--sparse", "--xattrs", "--numeric-owner"]


def odd_tree(directory):
    workers.write_odd_tree(f"{directory}/source", for_a_base=True)


def pack(source, directory, archive):
    source.run("tar", *TAR, "-C", source.path / directory, "-cf", archive, ".")


def unpack(target, archive, directory):
    target.run("mkdir", "-p", directory)
    target.run("tar", *TAR, "-C", directory, "-xpf", archive)


@pytest.fixture
def archive(scratch, uid):
    """The path of an archive in a directory to which the user of both places may write."""
    directory = scratch / "archives"
    directory.mkdir()
    os.chown(directory, uid, uid)
    return directory / "archive.tar"


@pytest.mark.timeout_s(300)
def test_tar_into_a_view_and_out_of_it_keeps_all(two_places, uid, archive):
    native, view = two_places(uid)
    native.python("write_odd_tree", "source")
    pack(native, "source", archive)
    unpack(view, archive, "copy")
    places.assert_equal_trees(native.tree("source"), view.tree("copy"))
    pack(view, "copy", archive)
    unpack(native, archive, "back")
    places.assert_equal_trees(native.tree("source"), native.tree("back"))


@pytest.mark.timeout_s(300)
def test_tar_extracts_over_existing_files(two_places, uid, in_base, archive):
    native, view = two_places(uid, odd_tree if in_base else None)
    for place in (native, view):
        if not in_base:
            place.python("write_odd_tree", "source")
    native.run("cp", "-a", "source", "changed")
    native.python("change_odd_tree", "changed")
    pack(native, "changed", archive)
    for place in (native, view):
        unpack(place, archive, "source")
    places.assert_equal_trees(native.tree("source"), view.tree("source"))


def sync(place, source, target, *options):
    """Runs rsync; returns its list of changes."""
    return place.run(*RSYNC, *options, f"{source}/", f"{target}/")


@pytest.mark.timeout_s(300)
def test_rsync_into_a_view_and_out_of_it_keeps_all(two_places, uid):
    native, view = two_places(uid)
    native.python("write_odd_tree", "source")
    assert sync(view, native.path / "source", "copy")
    assert sync(view, native.path / "source", "copy") == ""
    places.assert_equal_trees(native.tree("source"), view.tree("copy"))
    assert sync(view, "copy", native.path / "back")
    assert sync(view, "copy", native.path / "back") == ""
    places.assert_equal_trees(native.tree("source"), native.tree("back"))


@pytest.mark.timeout_s(300)
@pytest.mark.parametrize("way", [["--delete"], ["--delete", "--inplace", "--no-whole-file"]],
                         ids=["by-rename", "in-place"])
def test_rsync_updates_existing_files(two_places, uid, in_base, way):
    native, view = two_places(uid, odd_tree if in_base else None)
    if not in_base:
        view.python("write_odd_tree", "source")
        native.python("write_odd_tree", "source")
    native.python("change_odd_tree", "source")
    assert sync(view, native.path / "source", "source", *way)
    assert sync(view, native.path / "source", "source", *way) == ""
    places.assert_equal_trees(native.tree("source"), view.tree("source"))
