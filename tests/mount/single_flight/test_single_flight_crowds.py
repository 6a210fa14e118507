# SPDX-License-Identifier: Apache-2.0
"""Many processes request the same entries in random orders, and builders are killed at random times."""

import random
import time

import pytest
from flights import KEY, build, look, results_as_they_come, start_look, wait_for_waits
from jobs import wait_until


@pytest.mark.parametrize("jobs", [1, 3, 8])
def test_clients_with_the_same_names_in_random_orders_build_each_once(mount, job_of, flights, jobs):
    keys = [f"KEY{number}" for number in range(60)]
    crowd = [job_of(mount, f"job{number % jobs}", 20001 + number % jobs) for number in range(8)]
    for number, process in enumerate(crowd):
        process.start("build_missing", process.path("triton"), keys, number)
    built = [key for process in crowd for key in process.result()]
    assert sorted(built) == sorted(keys)
    assert flights()["timeouts"] == 0
    assert mount.stats()["publish_conflicts"] == 0


def test_builders_that_die_at_any_time_leave_no_waiter(mount, job_of, flights):
    keys = [f"KEY{number}" for number in range(200)]
    crowd = [job_of(mount, f"job{number}", 20001 + number) for number in range(6)]
    for number, process in enumerate(crowd):
        process.start("build_missing", process.path("triton"), keys, number)
    for victim, count in zip(crowd[:3], (20, 60, 100)):
        wait_until(lambda: mount.stats()["entries_published"] >= count, seconds=60)
        victim.kill()
    for process in crowd[3:]:
        process.result()
    assert {path.name for path in (mount.base("triton")).iterdir()} == set(keys)
    assert flights()["timeouts"] == 0


@pytest.mark.timeout_s(300)
def test_two_hundred_builders_are_killed_at_random_and_all_others_finish(mount, job_of, flights):
    pick = random.Random(5)
    others = [job_of(mount, f"other{number}", 20100 + number) for number in range(3)]
    for number in range(200):
        key = f"triton/KEY{number}"
        leader = job_of(mount, f"leader{number % 4}", 20050 + number % 4)
        assert not look(leader, key)
        for other in others:
            start_look(other, key)
        wait_for_waits(mount, 3 * (number + 1))
        if pick.random() < 0.5:
            leader.start("triton_put", leader.path(key), "other.bin", b"x" * pick.randrange(200000))
        time.sleep(pick.random() / 100)  # so that the leader is killed at a random point of its work
        leader.kill()
        found = []
        for other, there in results_as_they_come(others):
            found.append(there)
            if not there:
                build(other, key)
        assert sorted(found) == [False, True, True]
    assert flights() == {"leases": 400, "waits": 600, "hits": 400, "timeouts": 0, "failures": 0}


@pytest.mark.timeout_s(300)
def test_sixty_four_clients_with_two_hundred_names_in_random_orders_finish(mount, job_of, flights):
    keys = [f"KEY{number}" for number in range(200)]
    crowd = [job_of(mount, f"job{number}", 20001 + number) for number in range(64)]
    for number, process in enumerate(crowd):
        process.start("build_missing", process.path("triton"), keys, number)
    built = [key for process in crowd for key in process.result(timeout=240)]
    assert sorted(built) == sorted(keys)
    assert flights()["timeouts"] == 0
