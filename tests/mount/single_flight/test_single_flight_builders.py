# SPDX-License-Identifier: Apache-2.0
"""A builder that dies or fails is replaced."""

import os
import signal
import time

import pytest
from flights import KEY, NAME, build, look, start_look, wait_for_waits


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


# If a kernel does not compile, the autotuner catches the error and continues with the next kernel.
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
    time.sleep(0.1)  # longer than kFlightApproach, so that the next lookup belongs to a new sequence
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


@pytest.mark.parametrize("arrival", ["rename", "link"])
def test_a_builder_whose_temporary_directory_held_a_part_still_builds(mount, crowd, flights, arrival):
    leader, other = crowd(2)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    temporary = leader.path(KEY, "tmp.pid_7_5f3c")
    leader("os.mkdir", temporary)
    leader.write(f"{KEY}/tmp.pid_7_5f3c/part", b"part")
    leader(f"os.{arrival}", f"{temporary}/part", leader.path(KEY, "part"))
    leader("shutil.rmtree", temporary)
    assert flights()["failures"] == 0
    leader("os.unlink", leader.path(KEY, "part"))  # so that `build` completes the entry
    build(leader)
    assert other.result(timeout=10)
