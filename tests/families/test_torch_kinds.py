# SPDX-License-Identifier: Apache-2.0
"""Runs users of torch ≤ 2.13 and of torch ≥ 2.14 at once on one store, where the lock files of both kinds have the
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
        # Users with a FileBaton build their own copies if nothing was published before.
        assert built[0] <= 3 and built[1] <= 6
        later = [crowd.run(1)[0] for crowd in crowds]
        assert [report.errors for report in later] == [{}] * 2
        assert [crowd.builds() for crowd in crowds] == built
