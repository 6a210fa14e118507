# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of real programs: two directories of one user, one of them in a job's view."""

import os
import pathlib
import subprocess

import pytest
from places import Place


@pytest.fixture(params=[0, 20001], ids=["root", "user"])
def uid(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["fresh", "in-base"])
def in_base(request):
    """True if the program changes data that the base contains; false if the program creates its data itself."""
    return request.param


@pytest.fixture
def two_places(scratch, store, mount_store):
    """two_places(uid, fill) returns a native directory and one in a view, with the same contents.

    `fill(directory)` creates the common contents, as root, before the mount, so that they are in the base.
    """

    def make(uid, fill=None):
        native, base = scratch / "native", store / "w"
        native.mkdir()
        if fill:
            fill(native)
        # The base's copy belongs to root, and its files are readable by all users.
        subprocess.run(["cp", "-a", native, base], check=True)
        subprocess.run(["chown", "-hR", f"{uid}:{uid}", native], check=True)
        view = mount_store(store).path / ".jobs/j/w"
        return Place(native, uid, None), Place(view, uid, "j")

    return make


@pytest.fixture
def cores():
    return len(os.sched_getaffinity(0))
