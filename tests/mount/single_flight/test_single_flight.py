# SPDX-License-Identifier: Apache-2.0
"""A single process builds an entry. The others wait for it, unless waiting would be useless."""

import json
import os
import pathlib
import signal

import pytest
from flights import KEY, NAME, build, look, start_look, wait_for_waits
from jobs import wait_until


def test_waiters_get_the_entry_that_the_builder_builds(mount, crowd, flights):
    leader, *others = crowd(6)
    assert not look(leader)
    for other in others:
        start_look(other)
    wait_for_waits(mount, 5)
    build(leader)
    assert [other.result() for other in others] == [True] * 5
    assert [other.read(f"{KEY}/{NAME}") for other in others] == [b"built"] * 5
    assert flights() == {"leases": 1, "waits": 5, "hits": 5, "timeouts": 0, "failures": 0}


def test_builder_and_waiter_count_are_shown(mount, crowd):
    leader, *others = crowd(3)
    assert not look(leader)
    for other in others:
        start_look(other)
    wait_for_waits(mount, 2)
    flights = pathlib.Path(mount.path, ".cacheshim/flights")
    assert json.loads(flights.read_text()) == [
        {"path": f"{KEY}/{NAME}", "job": "", "leader": leader.pid, "waiting": 2}]
    build(leader)
    for other in others:
        other.result()
    assert json.loads(flights.read_text()) == []


def test_processes_of_one_job_wait_for_each_other(mount, job_of, flights):
    leader, *others = [job_of(mount, "one", 20001) for _ in range(4)]
    assert not look(leader)
    for other in others:
        start_look(other)
    wait_for_waits(mount, 3)
    build(leader)
    assert [other.result() for other in others] == [True] * 3
    assert flights() == {"leases": 1, "waits": 3, "hits": 3, "timeouts": 0, "failures": 0}


def test_a_waiter_may_open_the_file_as_well(mount, crowd):
    leader, reader, maker = crowd(3)
    assert not look(leader)
    for other in (reader, maker):
        other("os.makedirs", other.path(KEY), exist_ok=True)
    reader.start("read_file", reader.path(KEY, NAME))
    maker.start("hold", maker.path(KEY, NAME), os.O_RDWR | os.O_CREAT)
    wait_for_waits(mount, 2)
    build(leader)
    assert reader.result() == b"built"
    assert maker("os.read", maker.result(), 100) == b"built"


def test_an_open_that_creates_continues_when_the_builder_dies(mount, crowd):
    leader, maker = crowd(2)
    assert not look(leader)
    maker("os.makedirs", maker.path(KEY))
    maker.start("write_file", maker.path(KEY, NAME), b"mine")
    wait_for_waits(mount, 1)
    leader.kill()
    maker.result()
    assert maker.read(f"{KEY}/{NAME}") == b"mine"


def test_a_signal_ends_the_wait(mount, crowd, flights):
    leader, other = crowd(2)
    assert not look(leader)
    other.start("look_until_signalled", other.path(KEY), NAME)
    wait_for_waits(mount, 1)
    os.kill(other.pid, signal.SIGUSR1)
    assert other.result() == (False, 1)
    assert not look(other), "it builds for itself then"
    build(other)
    assert look(leader), "and what it builds is published like any other"
    assert flights()["timeouts"] == 0


def test_a_waiter_can_be_killed(mount, crowd, flights):
    leader, other, third = crowd(3)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    other.kill()
    start_look(third)
    wait_for_waits(mount, 2)
    build(leader)
    assert third.result()
    assert flights()["hits"] == 1


def ask_daemon(mount, op):
    assert mount.ask(op=op) == {"ok": True}


def test_a_closed_mount_releases_waiters(mount, crowd):
    leader, other, third = crowd(3)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    ask_daemon(mount, "close")
    assert not other.result(timeout=10), "as long as it serves, everybody builds for himself"
    assert not look(third)
    ask_daemon(mount, "reopen")
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 2)
    build(leader)
    assert other.result()


def test_no_process_waits_longer_than_the_timeout(mount_store, store, scratch, job_of):
    (scratch / "config.toml").write_text('flight_timeout = "1s"\n')
    mount = mount_store(store, "--config", str(scratch / "config.toml"))
    leader, other = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    assert not look(leader)
    assert not look(other)
    assert not look(other), "who has waited enough does not wait again"
    assert mount.stats()["flight_timeouts"] == 1
    build(other)
    assert look(leader)


def test_without_a_timeout_nobody_waits(mount_store, store, scratch, job_of):
    (scratch / "config.toml").write_text("flight_timeout = 0\n")
    mount = mount_store(store, "--config", str(scratch / "config.toml"))
    for number in range(3):
        assert not look(job_of(mount, f"job{number}", 20001 + number))
    assert mount.stats()["flight_leases"] == 0


def test_a_job_that_publishes_nothing_builds_for_itself(mount, job_of, flights):
    never = {"env": {"CACHESHIM_PUBLISH": "never"}}
    leader, second = job_of(mount, "own", 20001, **never), job_of(mount, "own", 20001, **never)
    other = job_of(mount, "other", 20002)
    assert not look(leader)
    assert not look(other), "what the first builds would not show there"
    start_look(second)
    wait_for_waits(mount, 1)
    build(leader)
    assert second.result()
    assert flights() == {"leases": 2, "waits": 1, "hits": 1, "timeouts": 0, "failures": 0}


def test_a_job_that_publishes_nothing_waits_for_one_that_does(mount, job_of):
    leader = job_of(mount, "one", 20001)
    other = job_of(mount, "own", 20002, env={"CACHESHIM_PUBLISH": "never"})
    third = job_of(mount, "three", 20003)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    start_look(third)
    wait_for_waits(mount, 2)
    leader.kill()
    assert not other.result(), "it builds for itself, and cannot lead the others"
    assert not third.result()


def test_a_child_of_the_builder_does_not_wait(mount, crowd, flights):
    leader, other = crowd(2)
    assert not look(leader)
    assert leader("look_in_child", leader.path(KEY), NAME) == 0
    start_look(other)
    wait_for_waits(mount, 1)
    build(leader)
    assert other.result()
    assert flights()["waits"] == 1


def test_no_process_waits_for_an_entry_that_no_job_has_begun(mount_store, store, job_of):
    (store / KEY).mkdir(parents=True)
    mount = mount_store(store)
    for number in range(2):
        process = job_of(mount, f"job{number}", 20001 + number)
        assert not process.exists(f"{KEY}/{NAME}")
    assert mount.stats()["flight_leases"] == 0


def test_other_names_are_not_waited_for(mount, crowd):
    leader, other = crowd(2)
    assert not look(leader)
    other("os.makedirs", other.path(KEY))
    assert not other.exists(f"{KEY}/kernel.cubin")
    assert other.listdir(KEY) == [], "a placeholder is no name"
    assert mount.stats()["flight_waits"] == 0


def test_a_builder_that_only_repeats_its_lookup_has_no_waiters(mount, crowd):
    watcher, builder = crowd(2)
    watcher.start("poll_until_found", watcher.path(KEY), NAME, 30)
    wait_until(lambda: mount.stats()["flight_leases"] == 1)
    assert not look(builder)
    build(builder)
    assert watcher.result()


def test_a_raw_process_ends_the_wait_as_well(mount, store, crowd):
    leader, other = crowd(2)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    # The file is written elsewhere and then renamed, because an empty file at its name would end the wait.
    (store.parent / NAME).write_bytes(b"raw")
    (store / KEY).mkdir(parents=True)
    os.rename(store.parent / NAME, store / KEY / NAME)
    assert other.result()
    assert other.read(f"{KEY}/{NAME}") == b"raw"


@pytest.mark.parametrize("end", ["build", "kill"])
def test_daemons_of_one_store_wait_for_each_other(mount_store, store, job_of, end):
    first, second = mount_store(store), mount_store(store)
    leader, other = job_of(first, "one", 20001), job_of(second, "two", 20002)
    assert not look(leader)
    start_look(other)
    wait_for_waits(second, 1)
    if end == "build":
        build(leader)
        assert other.result()
    else:
        first.kill_daemon()
        assert not other.result()
        build(other)
    assert not list((store / ".cacheshim/leases").iterdir()) or end == "kill"
