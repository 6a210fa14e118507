# SPDX-License-Identifier: Apache-2.0
"""A builder that dies or fails is replaced; the builder of the last entry is expected to build the next."""

import json
import os
import pathlib
import signal
import time

import pytest
from flights import KEY, NAME, build, look, results_as_they_come, start_look, wait_for_waits
from jobs import stop, wait_until


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_dead_builder_hands_over(mount, crowd, flights, end):
    leader, *others = crowd(4)
    assert not look(leader)
    for number, other in enumerate(others):
        start_look(other)
        wait_for_waits(mount, number + 1)
    os.kill(leader.pid, signal.SIGKILL if end == "kill" else signal.SIGSTOP)
    next_leader, *rest = others
    assert not next_leader.result(), "the one who has waited longest builds"
    build(next_leader)
    assert [other.result() for other in rest] == [True] * 2
    if end == "stop":
        os.kill(leader.pid, signal.SIGCONT)
    assert flights() == {"leases": 2, "waits": 3, "hits": 2, "timeouts": 0, "failures": 0}


def led_by(mount, key):
    """Returns the recorded builder of a key, once there is one."""
    flights = pathlib.Path(mount.path, ".cacheshim/flights")

    def leader():
        return next((flight["leader"] for flight in json.loads(flights.read_text())
                     if flight["path"].startswith(f"{key}/")), None)

    return wait_until(leader, what=f"a leader for {key}")


def follow(mount, leader, followers, key):
    """Makes one process build a key while the others wait; returns when all have continued."""
    assert not look(leader, key)
    waits = mount.stats()["flight_waits"]
    for follower in followers:
        start_look(follower, key)
    wait_for_waits(mount, waits + len(followers))
    build(leader, key)
    assert all(follower.result() for follower in followers)


def test_the_builder_of_one_result_is_expected_to_build_the_next(mount, crowd):
    """The daemon expects the builder only for a short time, which may end early on a busy machine: hence several
    attempts."""
    leader, *followers = crowd(9)
    led = []
    for number, follower in enumerate(followers):
        follow(mount, leader, [follower], f"triton/FIRST{number}")
        key = f"triton/NEXT{number}"
        start_look(follower, key)
        led.append(led_by(mount, key))  # or the daemon expects it to build
        start_look(leader, key)
        results = results_as_they_come([leader, follower])
        builder, there = next(results)
        assert not there
        build(builder, key)
        assert [there for _, there in results] == [True]
        if builder is leader:
            return
    pytest.fail(f"{leader.pid} never led: {led}")


def test_a_builder_that_does_not_arrive_is_expected_only_once(mount, crowd):
    leader, follower = crowd(2)
    for number in range(100):  # on a busy machine, a process that comes late finds no expected builder
        waits = mount.stats()["flight_waits"]
        follow(mount, leader, [follower], f"triton/FIRST{number}")
        assert not look(follower, f"triton/NEXT{number}")
        build(follower, f"triton/NEXT{number}")
        if mount.stats()["flight_waits"] > waits + 1:  # one of the waits is for the first name
            break
    else:
        pytest.fail("no builder was ever expected")
    follow(mount, leader, [follower], "triton/TOGETHER")
    waits = mount.stats()["flight_waits"]
    assert not look(follower, "triton/LAST")
    assert mount.stats()["flight_waits"] == waits


@pytest.mark.parametrize("what", ["has ended", "was stopped", "builds something else"])
def test_a_builder_that_cannot_arrive_is_not_expected(mount, crowd, what):
    leader, follower = crowd(2)
    follow(mount, leader, [follower], KEY)
    waits = mount.stats()["flight_waits"]
    if what == "has ended":
        leader.kill()
    elif what == "was stopped":
        stop(leader.pid)
    else:
        assert not look(leader, "triton/OTHER")
    assert not look(follower, "triton/NEXT")
    if what == "was stopped":
        os.kill(leader.pid, signal.SIGCONT)
    assert mount.stats()["flight_waits"] == waits


# A kernel does not compile: the autotuner catches the error and continues with the next one.
def test_a_builder_that_begins_another_kernel_has_failed_the_previous_one(mount, crowd, flights):
    leader, other, late = crowd(3)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    assert not look(leader, "triton/NEXT")
    assert not other.result(timeout=10), "it builds for itself"
    assert not look(late), "nobody waits for that name any more"
    assert (flights()["failures"], flights()["waits"]) == (1, 1)
    build(other)
    assert look(late)


@pytest.mark.parametrize("preloaded", [False, True], ids=["plain", "preloaded"])
def test_a_builder_that_opens_a_published_kernel_has_failed_the_previous_one(
        mount, job_of, shimmed_job_of, flights, preloaded):
    early, other = job_of(mount, "early", 20001), job_of(mount, "other", 20002)
    leader = (shimmed_job_of if preloaded else job_of)(mount, "leader", 20003)
    build(early, "triton/THERE")
    assert leader.read(f"triton/THERE/{NAME}") == b"built", "the kernel has it now"
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    assert leader.read(f"triton/THERE/{NAME}") == b"built"
    assert not other.result(timeout=10), "it builds for itself"
    assert flights()["failures"] == 1


def test_a_builder_that_repeats_its_lookup_without_progress_has_failed(mount, crowd, flights):
    leader, other = crowd(2)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    time.sleep(0.1)  # longer than kFlightApproach: this is a new call sequence
    assert not look(leader)
    assert not other.result(timeout=10)
    assert flights()["failures"] == 1


def test_a_builder_that_removes_its_temporary_directory_unused_has_failed(mount, crowd, flights):
    leader, other = crowd(2)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    leader("os.mkdir", leader.path(KEY, "tmp.pid_7_5f3c"))
    leader.write(f"{KEY}/tmp.pid_7_5f3c/{NAME}", b"half")
    leader("shutil.rmtree", leader.path(KEY, "tmp.pid_7_5f3c"))
    assert not other.result(timeout=10)
    assert flights()["failures"] == 1
