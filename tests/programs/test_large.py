# SPDX-License-Identifier: Apache-2.0
"""Sparse files larger than 4 GiB: offsets are not truncated, and a copy-up fills no hole."""

import places
import pytest

GIB = 1 << 30
LARGE = ["write_sparse_file", "large", 6 * GIB - 5, 0, 5 * GIB]


def large_in(directory):
    places.Place(directory, 0, None).python(*LARGE)


@pytest.mark.timeout_s(300)
def test_offsets_beyond_4_gib(two_places, uid, in_base):
    seen = []
    for place in two_places(uid, large_in if in_base else None):
        if not in_base:
            place.python(*LARGE)
        seen.append(place.python("change_large_file", "large"))
    assert "size 6442450951\n" in seen[0]
    assert seen[0] == seen[1]
