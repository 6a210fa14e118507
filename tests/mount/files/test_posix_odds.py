# SPDX-License-Identifier: Apache-2.0
"""Unusual parts of POSIX, compared in a plain directory and in a view (odds.py)."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from jobs import PYTHON, as_user

NAMES = ["listing_positions", "listing_under_change", "inotify", "removed_cwd", "unlinked_files",
         "still_open", "hard_links", "append", "long_names", "long_paths", "masks", "groups",
         "set_id_bits"]


@pytest.fixture
def program_of_odds(scratch):
    copy = scratch / "odds.py"
    shutil.copyfile(pathlib.Path(__file__).with_name("odds.py"), copy)
    copy.chmod(0o644)
    return copy


@pytest.fixture
def directories(scratch, store, mount_store):
    """directories(uid, fill) calls fill(directory) as root to fill a native directory, copies it into a base, and
    mounts the store. Returns the native directory, which then belongs to `uid`, and the directory in a view."""

    def make(uid, fill):
        native, base = scratch / "native", store / "odds"
        native.mkdir()
        fill(native)
        subprocess.run(["cp", "-a", native, base], check=True)
        subprocess.run(["chown", "-hR", f"{uid}:{uid}", native], check=True)
        return native, mount_store(store).path / ".jobs/odds/odds"

    return make


def without_set_ids(line):
    """Returns the line without the set-id bits of a file's mode, as stat.filemode() writes it."""
    return re.sub(r"(?<!\S)-[-rwxsStT]{9}$", lambda mode: mode[0].translate(str.maketrans("sS", "x-")), line)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("in_base", [False, True], ids=["fresh", "in-base"])
@pytest.mark.parametrize("uid", [0, 20001], ids=["root", "user"])
def test_a_view_does_what_a_plain_directory_does(directories, program_of_odds, uid, in_base, name):
    def odds(what, directory, user):
        result = as_user(user, [PYTHON, "-I", program_of_odds, what, directory], job="odds",
                         extra_groups=[20005, 20006])
        assert result.returncode == 0, f"{what} in {directory}:\n{result.stdout}{result.stderr}"
        return result.stdout.splitlines()

    def prepare(directory, user):
        odds("prepare_listing" if name.startswith("listing") else "prepare", directory, user)

    native, view = directories(uid, lambda directory: prepare(directory, 0) if in_base else None)
    if not in_base:
        for directory in (native, view):
            prepare(directory, uid)
    # In a view, every object belongs to the job's user and that user's group, and only root can set set-id bits of
    # files.
    expected = [f"gid {uid}" if line.startswith("gid ") else line
                for line in odds(name, native, uid)]
    if uid != 0:
        expected = [without_set_ids(line) for line in expected]
    assert expected
    assert odds(name, view, uid) == expected
