# SPDX-License-Identifier: Apache-2.0
"""What changes in the middle of a process's call, or while it runs for days."""

import struct

import pytest
from direct import KEY, UID, Count, base, mount, opens_as_the_views_folder  # noqa: F401
from direct import turns, warm  # noqa: F401
from jobs import wait_until

HOURS = 3600
BASE_CHANGES = 48  # where MountPage has them (common/direct_page.h)


def base_changes(mount):
    return struct.unpack_from("<Q", (mount.run_folder() / "state").read_bytes(), BASE_CHANGES)[0]


def test_a_file_that_becomes_a_folder_while_it_is_opened_is_opened_as_one_from_then_on(mount, base,
                                                                                       turns):
    process = warm(mount, turns.job("j", UID))
    path = process.path(KEY, "file")
    with turns.held(process, "after", "KEY/file", "read_file", path):
        for change in ((base / KEY / "file").unlink, (base / KEY / "file").mkdir):
            before = base_changes(mount)
            change()
            wait_until(lambda: base_changes(mount) > before)
    assert process.result() == b"of the base"
    wait_until(lambda: opens_as_the_views_folder(process, path))
    assert not (base / KEY / "file/mine").exists()


def test_a_file_in_use_is_told_of_every_day_by_a_process_that_runs_on(mount, turns):
    process = warm(mount, turns.job("j", UID))
    for late, opens in ((0, 1), (0, 1), (23 * HOURS, 1), (25 * HOURS, 0), (25 * HOURS, 1)):
        turns.be_late(late)
        with Count(mount) as count:
            assert process.read(f"{KEY}/file") == b"of the base"
        assert count.opens == opens, late


@pytest.mark.parametrize("file", ["views/k", "counters/k"])
def test_root_that_maps_its_view_while_the_jobs_user_comes_sees_it_as_that_ones(
        mount, turns, job_of, file):
    root = turns.job("k", 0)
    path = root.path(KEY, "file")
    root.exists("none")  # the job begins
    with turns.held(root, "before", file, "look", path):
        assert job_of(mount, "k", UID).read(f"{KEY}/file") == b"of the base"
    root.result()
    for _ in range(40):
        assert root("os.stat", path).st_uid == UID
