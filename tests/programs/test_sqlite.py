# SPDX-License-Identifier: Apache-2.0
"""Tests SQLite's locks, journals and shared memory with several processes at once."""

import concurrent.futures

import places
import pytest

WRITERS, TRANSACTIONS = 4, 40


def filled_database(mode):
    def fill(directory):
        places.Place(directory, 0, None).python("make_database", "data.db", mode, 1000)

    return fill


def write_from_all(place, database):
    """Runs all writers at once, with a reader that fails if it sees half of a transaction."""
    with concurrent.futures.ThreadPoolExecutor(WRITERS + 1) as pool:
        writers = [pool.submit(place.python, "write_pairs", database, number, TRANSACTIONS)
                   for number in range(WRITERS)]
        reader = pool.submit(place.python, "read_pairs", database, WRITERS * TRANSACTIONS)
        for one in (*writers, reader):
            one.result()


@pytest.mark.timeout_s(300)
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_writers_of_one_database_lose_nothing(two_places, uid, in_base, mode):
    found = []
    for place in two_places(uid, filled_database(mode) if in_base else None):
        if not in_base:
            place.python("make_database", "data.db", mode, 10)
        write_from_all(place, "data.db")
        found.append(place.python("look_at_database", "data.db"))
    rows = (1000 if in_base else 10) + 2 * WRITERS * TRANSACTIONS
    assert f"rows {rows}\n" in found[0] and "integrity ok\n" in found[0]
    assert found[0] == found[1]
