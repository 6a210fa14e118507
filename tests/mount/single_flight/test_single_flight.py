# SPDX-License-Identifier: Apache-2.0
"""One process builds what the others wait for; nobody waits for one who will not build."""

import json
import os
import pathlib
import random
import select
import signal
import time

import pytest
from jobs import stop, wait_until

NAME = "stub.so"  # of class flight, and complete when it is its entry's only file
KEY = "triton/KEY"


def look(process, key=KEY):
    return process("begin_and_look", process.path(key), NAME)


def start_look(process, key=KEY):
    process.start("begin_and_look", process.path(key), NAME)


def build(process, key=KEY):
    process("triton_put", process.path(key), NAME, b"built")


def wait_for_waits(mount, count):
    wait_until(lambda: mount.stats()["flight_waits"] >= count, what=f"{count} waits")


@pytest.fixture
def crowd(mount, job_of):
    """Processes of as many jobs and users."""

    def make(count, **options):
        return [job_of(mount, f"job{number}", 20001 + number, **options) for number in range(count)]

    return make


@pytest.fixture
def flights(mount):
    """The counters of single flight, without their common beginning."""
    return lambda: {name.removeprefix("flight_"): value for name, value in mount.stats().items()
                    if name.startswith("flight_")}


def test_the_others_wait_for_the_first_and_get_what_it_builds(mount, crowd, flights):
    leader, *others = crowd(6)
    assert not look(leader)
    for other in others:
        start_look(other)
    wait_for_waits(mount, 5)
    build(leader)
    assert [other.result() for other in others] == [True] * 5
    assert [other.read(f"{KEY}/{NAME}") for other in others] == [b"built"] * 5
    assert flights() == {"leases": 1, "waits": 5, "hits": 5, "timeouts": 0, "failures": 0}


def test_who_leads_and_how_many_wait_can_be_seen(mount, crowd):
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


def test_one_who_waits_may_open_the_file_as_well(mount, crowd):
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


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_leader_that_is_gone_hands_over(mount, crowd, flights, end):
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
    """Who is on record as the leader for a key, once anybody is."""
    flights = pathlib.Path(mount.path, ".cacheshim/flights")

    def leader():
        return next((flight["leader"] for flight in json.loads(flights.read_text())
                     if flight["path"].startswith(f"{key}/")), None)

    return wait_until(leader, what=f"a leader for {key}")


def follow(mount, leader, followers, key):
    """One builds; the others wait for it and go on."""
    assert not look(leader, key)
    waits = mount.stats()["flight_waits"]
    for follower in followers:
        start_look(follower, key)
    wait_for_waits(mount, waits + len(followers))
    build(leader, key)
    assert all(follower.result() for follower in followers)


def test_who_has_built_one_result_is_expected_to_build_the_next(mount, crowd):
    """For a moment, which may be over before it comes if the machine is busy: hence several tries."""
    leader, *followers = crowd(9)
    led = []
    for number, follower in enumerate(followers):
        follow(mount, leader, [follower], f"triton/FIRST{number}")
        key = f"triton/NEXT{number}"
        start_look(follower, key)
        led.append(led_by(mount, key))  # or is expected to lead
        start_look(leader, key)
        results = results_as_they_come([leader, follower])
        builder, there = next(results)
        assert not there
        build(builder, key)
        assert [there for _, there in results] == [True]
        if builder is leader:
            return
    pytest.fail(f"{leader.pid} never led: {led}")


def test_a_builder_that_does_not_come_is_expected_once(mount, crowd):
    leader, follower = crowd(2)
    for number in range(100):  # nobody is expected by one who comes late, as on a busy machine
        waits = mount.stats()["flight_waits"]
        follow(mount, leader, [follower], f"triton/FIRST{number}")
        assert not look(follower, f"triton/NEXT{number}")
        build(follower, f"triton/NEXT{number}")
        if mount.stats()["flight_waits"] > waits + 1:  # one is for the first name
            break
    else:
        pytest.fail("no builder was ever expected")
    follow(mount, leader, [follower], "triton/TOGETHER")
    waits = mount.stats()["flight_waits"]
    assert not look(follower, "triton/LAST")
    assert mount.stats()["flight_waits"] == waits


@pytest.mark.parametrize("what", ["has ended", "was stopped", "builds something else"])
def test_a_builder_that_cannot_come_is_not_expected(mount, crowd, what):
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


def test_an_open_that_creates_goes_on_when_its_leader_dies(mount, crowd):
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


def test_one_who_waits_can_be_killed(mount, crowd, flights):
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
    with open(mount.path / ".cacheshim/control", "r+b", buffering=0) as control:
        control.write(json.dumps({"op": op}).encode())
        answer = json.loads(control.readall().splitlines()[-1])
    assert answer == {"ok": True}


def test_a_mount_that_is_closed_lets_go_of_those_who_wait(mount, crowd):
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


def test_nobody_waits_longer_than_the_timeout(mount_store, store, scratch, job_of):
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


# A kernel that does not compile: the autotuner catches the error and goes on to the next one.
def test_a_leader_that_begins_another_kernel_has_failed_the_one_before(mount, crowd, flights):
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
def test_a_leader_that_opens_a_published_kernel_has_failed_the_one_before(
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


def test_a_leader_that_comes_again_and_has_made_nothing_has_failed(mount, crowd, flights):
    leader, other = crowd(2)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    time.sleep(0.1)  # more than an approach takes
    assert not look(leader)
    assert not other.result(timeout=10)
    assert flights()["failures"] == 1


def test_a_leader_that_removes_its_temporary_directory_unused_has_failed(mount, crowd, flights):
    leader, other = crowd(2)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    leader("os.mkdir", leader.path(KEY, "tmp.pid_7_5f3c"))
    leader.write(f"{KEY}/tmp.pid_7_5f3c/{NAME}", b"half")
    leader("shutil.rmtree", leader.path(KEY, "tmp.pid_7_5f3c"))
    assert not other.result(timeout=10)
    assert flights()["failures"] == 1


def test_a_job_that_publishes_nothing_leads_for_itself_alone(mount, job_of, flights):
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


def test_one_that_publishes_nothing_waits_for_one_that_does(mount, job_of):
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


def test_a_process_and_its_children_are_one(mount, crowd, flights):
    leader, other = crowd(2)
    assert not look(leader)
    assert leader("look_in_child", leader.path(KEY), NAME) == 0
    start_look(other)
    wait_for_waits(mount, 1)
    build(leader)
    assert other.result()
    assert flights()["waits"] == 1


@pytest.fixture
def nested(own_profiles):
    """A cache whose builds may need one another: without one_by_one."""
    (own_profiles / "nested.toml").write_text(
        'name = "nested"\nevidence = "run"\n[[entry]]\npath = "*"\ncomplete = ["stub.so"]\n'
        '[class]\nscratch = ["tmp.pid_*"]\nflight = ["stub.so"]\n')


def test_who_would_wait_for_one_who_waits_for_it_does_not(nested, mount, crowd, flights):
    one, two, three = crowd(3)
    keys = ["nested/A", "nested/B", "nested/C"]
    for process, key in zip((one, two, three), keys):
        assert not look(process, key)
    start_look(one, keys[1])
    wait_for_waits(mount, 1)
    start_look(two, keys[2])
    wait_for_waits(mount, 2)
    assert not look(three, keys[0]), "the third would close the circle"
    build(three, keys[0])
    build(three, keys[2])
    assert two.result()
    build(two, keys[1])
    assert one.result()
    assert flights()["timeouts"] == 0


def test_a_child_that_waits_for_its_parents_follower_closes_a_circle_too(nested, mount, crowd):
    one, two = crowd(2)
    assert not look(one, "nested/A")
    assert not look(two, "nested/B")
    one.start("look_in_child", one.path("nested/B"), NAME)
    wait_for_waits(mount, 1)
    assert not look(two, "nested/A"), "the first waits for its child, which waits for the second"
    build(two, "nested/B")
    assert one.result() == 1


def test_where_nobody_has_begun_nobody_waits(mount_store, store, job_of):
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


def test_one_who_only_looks_again_and_again_is_not_waited_for(mount, crowd):
    watcher, builder = crowd(2)
    watcher.start("look_again_and_again", watcher.path(KEY), NAME, 30)
    wait_until(lambda: mount.stats()["flight_leases"] == 1)
    assert not look(builder)
    build(builder)
    assert watcher.result()


def test_a_raw_process_ends_the_wait_as_well(mount, store, crowd):
    leader, other = crowd(2)
    assert not look(leader)
    start_look(other)
    wait_for_waits(mount, 1)
    (store.parent / NAME).write_bytes(b"raw")  # an empty file would end the wait as well
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


@pytest.mark.parametrize("jobs", [1, 3, 8])
def test_many_who_want_the_same_names_in_random_orders_build_each_once(mount, job_of, flights, jobs):
    keys = [f"KEY{number}" for number in range(60)]
    crowd = [job_of(mount, f"job{number % jobs}", 20001 + number % jobs) for number in range(8)]
    for number, process in enumerate(crowd):
        process.start("build_missing", process.path("triton"), keys, number)
    built = [key for process in crowd for key in process.result()]
    assert sorted(built) == sorted(keys)
    assert flights()["timeouts"] == 0
    assert mount.stats()["publish_conflicts"] == 0


def test_leaders_that_die_at_any_moment_leave_nobody_waiting(mount, job_of, flights):
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


def results_as_they_come(processes):
    """(process, result) of each call that was started, in the order of their ends."""
    waiting = {process.stdout_fd: process for process in processes}
    while waiting:
        ready = select.select(list(waiting), [], [], 60)[0]
        assert ready, f"{len(waiting)} wait on"
        for fd in ready:
            process = waiting.pop(fd)
            yield process, process.result()


@pytest.mark.timeout_s(300)
def test_two_hundred_leaders_are_killed_at_random_and_all_others_finish(mount, job_of, flights):
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
        time.sleep(pick.random() / 100)  # at any moment of its work
        leader.kill()
        found = []
        for other, there in results_as_they_come(others):
            found.append(there)
            if not there:
                build(other, key)
        assert sorted(found) == [False, True, True]
    assert flights() == {"leases": 400, "waits": 600, "hits": 400, "timeouts": 0, "failures": 0}


@pytest.mark.timeout_s(300)
def test_sixty_four_who_want_two_hundred_names_in_random_orders_finish(mount, job_of, flights):
    keys = [f"KEY{number}" for number in range(200)]
    crowd = [job_of(mount, f"job{number}", 20001 + number) for number in range(64)]
    for number, process in enumerate(crowd):
        process.start("build_missing", process.path("triton"), keys, number)
    built = [key for process in crowd for key in process.result(timeout=240)]
    assert sorted(built) == sorted(keys)
    assert flights()["timeouts"] == 0
