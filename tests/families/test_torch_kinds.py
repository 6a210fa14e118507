# SPDX-License-Identifier: Apache-2.0
"""Runs users of torch ≤ 2.13 (FileBaton) and of torch ≥ 2.14 (FileLock) at once on one store; their lock files have the
same name."""

import contextlib

import pytest
from crowd import Crowd
from family import MountedPlace
from loading import load

pytestmark = [pytest.mark.long, pytest.mark.timeout_s(900)]


def test_builders_by_either_lock_share_a_store(scratch, mount, library):
    place = MountedPlace(mount, str(library))
    families = [load("torch-extensions"), load("torch-batons")]
    with contextlib.ExitStack() as stack:
        crowds = []
        for number, family in enumerate(families):
            own = scratch / family.directory.name
            own.mkdir()
            crowds.append(Crowd(family, place, own, {}, first=1 + 10 * number))
            stack.callback(crowds[-1].close)
        users = [user for crowd in crowds for user in crowd.add(2)]
        for user in users:
            user.start()
        reports = [user.report() for user in users]
        assert [report.errors for report in reports] == [{}] * 4
        built = [crowd.builds() for crowd in crowds]
        # Each of the two users with a FileBaton may build all three extensions, if none was published before.
        assert built[0] <= 3 and built[1] <= 6
        later = [crowd.run(1)[0] for crowd in crowds]
        assert [report.errors for report in later] == [{}] * 2
        assert [crowd.builds() for crowd in crowds] == built
