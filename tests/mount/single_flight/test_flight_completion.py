# SPDX-License-Identifier: Apache-2.0
"""A waiter waits until the entry is complete, whichever name completes it, or until its builder gives up."""

import os
import select
import signal

import pytest
from jobs import wait_until

PROFILE = """name = "objects"
evidence = "read"
[[entry]]
path = "*"
{completion}
[class]
scratch = ["tmp.*"]
{classes}
flight = ["*.o"]
"""
KEY = "objects/KEY"
NAME = "a.o"
TICKS_S = 0.3  # several of the 50 ms intervals at which the daemon checks whether a wait is over


@pytest.fixture
def mount_with(own_profiles, mount_store, store, scratch):
    """mount_with(completion, classes, config) mounts a store with PROFILE. With the default arguments, the flight name
    a.o alone does not complete an entry."""

    def mount(completion='complete = ["DONE"]', classes="", config=""):
        (own_profiles / "objects.toml").write_text(
            PROFILE.format(completion=completion, classes=classes))
        (scratch / "config.toml").write_text(config)
        return mount_store(store, "--config", str(scratch / "config.toml"))

    return mount


@pytest.fixture
def crowd(job_of):
    """crowd(mount, count, job) starts `count` processes in `job`; if `job` is None, each has its own job and user."""

    def make(mount, count, job=None, **options):
        return [job_of(mount, job or f"job{number}", 20001 + (0 if job else number), **options)
                for number in range(count)]

    return make


def look(process):
    return process("create_and_look_up", process.path(KEY), NAME)


def wait_for(mount, process):
    """Starts a lookup of NAME in a process, and returns when the process waits."""
    waits = mount.stats()["flight_waits"]
    process.start("create_and_look_up", process.path(KEY), NAME)
    wait_until(lambda: mount.stats()["flight_waits"] > waits, what="the wait")


def put(process, name):
    process("triton_put", process.path(KEY), name, name.encode())


def assert_held(processes):
    ready = select.select([process.stdout_fd for process in processes], [], [], TICKS_S)[0]
    assert not ready, f"{len(ready)} of {len(processes)} waiters were released too early"


def flights(mount):
    return {name.removeprefix("flight_"): value for name, value in mount.stats().items()
            if name.startswith("flight_")}


def begin(mount, crowd, count=4, **options):
    """Makes one process the builder, and makes the others wait; returns the builder and the waiters."""
    builder, *waiters = crowd(mount, count, **options)
    assert not look(builder)
    for waiter in waiters:
        wait_for(mount, waiter)
    return builder, waiters


@pytest.mark.parametrize("job", [None, "one"])
def test_waiters_are_held_until_the_entry_is_complete(mount_with, crowd, job):
    mount = mount_with()
    builder, waiters = begin(mount, crowd, job=job)
    put(builder, NAME)
    assert_held(waiters)
    put(builder, "DONE")
    assert [waiter.result() for waiter in waiters] == [True] * 3
    assert [waiter.read(f"{KEY}/{NAME}") for waiter in waiters] == [NAME.encode()] * 3
    assert flights(mount) == {"leases": 1, "waits": 3, "hits": 3, "timeouts": 0, "failures": 0}


def test_a_job_that_comes_between_the_name_and_completion_waits_too(mount_with, crowd):
    mount = mount_with()
    builder, late = crowd(mount, 2)
    assert not look(builder)
    put(builder, NAME)
    wait_for(mount, late)
    put(builder, "DONE")
    assert late.result()
    assert flights(mount)["leases"] == 1


def test_a_completing_file_written_in_place_counts_once_it_is_closed(mount_with, crowd):
    mount = mount_with()
    builder, waiters = begin(mount, crowd)
    put(builder, NAME)
    done = builder("hold", builder.path(KEY, "DONE"), os.O_CREAT | os.O_WRONLY)
    assert_held(waiters)
    builder("release", done)
    assert [waiter.result() for waiter in waiters] == [True] * 3


def test_an_entry_with_a_baton_is_complete_when_the_baton_is_removed(mount_with, crowd):
    mount = mount_with(classes='baton = ["lock"]')
    builder, waiters = begin(mount, crowd)
    builder("release", builder("hold", builder.path(KEY, "lock"), os.O_CREAT | os.O_EXCL))
    put(builder, NAME)
    put(builder, "DONE")
    assert_held(waiters)
    builder("os.remove", builder.path(KEY, "lock"))
    assert [waiter.result() for waiter in waiters] == [True] * 3


def test_a_job_that_publishes_nothing_holds_its_own_processes(mount_with, crowd):
    mount = mount_with()
    builder, waiters = begin(mount, crowd, job="own", env={"CACHESHIM_PUBLISH": "never"})
    put(builder, NAME)
    assert_held(waiters)
    put(builder, "DONE")
    assert [waiter.result() for waiter in waiters] == [True] * 3
    assert flights(mount) == {"leases": 1, "waits": 3, "hits": 3, "timeouts": 0, "failures": 0}


def test_an_entry_completed_without_the_name_releases_all_waiters(mount_with, crowd):
    mount = mount_with()
    builder, waiters = begin(mount, crowd)
    put(builder, "b.txt")
    put(builder, "DONE")
    assert [waiter.result() for waiter in waiters] == [False] * 3
    assert waiters[0].exists(f"{KEY}/DONE")
    assert flights(mount) == {"leases": 1, "waits": 3, "hits": 0, "timeouts": 0, "failures": 0}


def test_waiters_of_another_daemon_are_held_until_the_entry_is_complete(mount_with, mount_store,
                                                                       store, crowd, job_of):
    first = mount_with()
    second = mount_store(store)
    builder, = crowd(first, 1)
    other = job_of(second, "other", 20009)
    assert not look(builder)
    wait_for(second, other)
    put(builder, NAME)
    assert_held([other])
    put(builder, "DONE")
    assert other.result()
    assert other.read(f"{KEY}/{NAME}") == NAME.encode()


def test_a_process_beside_the_mount_completes_the_entry(mount_with, store, crowd):
    mount = mount_with()
    _, waiters = begin(mount, crowd)
    (store / KEY).mkdir(parents=True)
    (store / KEY / NAME).write_bytes(b"raw")
    assert_held(waiters)
    (store / KEY / "DONE").write_bytes(b"")
    assert [waiter.result() for waiter in waiters] == [True] * 3
    assert waiters[0].read(f"{KEY}/{NAME}") == b"raw"


def remove_directory(builder, mount):
    for name in builder.listdir(KEY):
        builder("os.remove", builder.path(KEY, name))
    builder("os.rmdir", builder.path(KEY))


def move_directory(builder, mount):
    builder("os.rename", builder.path(KEY), builder.path("objects/tmp.old"))


GIVING_UP = {
    "it is killed": lambda builder, mount: os.kill(builder.pid, signal.SIGKILL),
    "it is stopped": lambda builder, mount: os.kill(builder.pid, signal.SIGSTOP),
    "it removes the directory": remove_directory,
    "it renames the directory": move_directory,
    "its job ends": lambda builder, mount: mount.end_job("job0", "failure"),
    "its layer is discarded": lambda builder, mount: mount.cli("job", "discard", "job0"),
}


@pytest.mark.parametrize("how", GIVING_UP)
def test_a_builder_that_gives_up_after_the_name_hands_over(mount_with, crowd, how):
    mount = mount_with()
    builder, (second, *rest) = begin(mount, crowd)
    put(builder, NAME)
    GIVING_UP[how](builder, mount)
    assert not second.result(timeout=10), "the one who has waited longest builds"
    assert_held(rest)
    put(second, NAME)
    put(second, "DONE")
    if how == "it is stopped":
        os.kill(builder.pid, signal.SIGCONT)
    assert [waiter.result() for waiter in rest] == [True] * 2
    assert flights(mount) == {"leases": 2, "waits": 3, "hits": 2, "timeouts": 0, "failures": 0}


def test_nobody_waits_for_completion_longer_than_the_timeout(mount_with, crowd):
    mount = mount_with(config='flight_timeout = "1s"\n')
    builder, waiters = begin(mount, crowd, 2)
    put(builder, NAME)
    assert not waiters[0].result(timeout=10)
    assert flights(mount)["timeouts"] == 1


def test_a_refused_builder_hands_over_once_the_entry_is_complete(mount_with, crowd):
    mount = mount_with(config="[publish]\nallow = { users = [20002, 20003] }\n")
    builder, second, third = crowd(mount, 3)
    assert not look(builder)  # may not publish, so it builds for its own job only
    assert not look(second)
    wait_for(mount, third)
    put(builder, NAME)
    put(builder, "DONE")
    assert_held([third])
    put(second, NAME)
    assert_held([third])
    put(second, "DONE")
    assert third.result()


@pytest.mark.parametrize("completion", ["", 'complete_at_end = ["DONE"]'])
def test_without_a_completion_rule_the_name_ends_the_wait(mount_with, crowd,
                                                                        completion):
    mount = mount_with(completion)
    builder, waiters = begin(mount, crowd, job="one")
    put(builder, NAME)
    assert [waiter.result() for waiter in waiters] == [True] * 3


def test_in_a_complete_entry_nobody_waits_for_a_name_that_completes_nothing(mount_with, crowd):
    mount = mount_with()
    builder, other = crowd(mount, 2)
    assert not look(builder)
    put(builder, "DONE")
    for process in (builder, other):
        put(process, "b.o")  # creates the directory in its own layer
        assert not look(process)
    assert flights(mount) == {"leases": 1, "waits": 0, "hits": 0, "timeouts": 0, "failures": 0}


def test_a_name_that_completes_is_waited_for_in_a_complete_entry(mount_with, crowd):
    mount = mount_with('complete = ["*.o", "DONE"]')
    builder, other = crowd(mount, 2)
    put(builder, "DONE")
    for process in (builder, other):
        put(process, "extra")  # creates the directory in its own layer
    assert not look(builder)
    wait_for(mount, other)
    put(builder, NAME)
    assert other.result()


def test_an_entry_built_under_a_lock_is_complete_at_the_unlock(mount_with, crowd):
    mount = mount_with('built_under = "locks/*.lock"', 'lock = ["locks/**"]')
    builder, waiters = begin(mount, crowd)
    builder("os.makedirs", builder.path("objects/locks"))
    lock = builder("os.open", builder.path("objects/locks/KEY.lock"), os.O_RDWR | os.O_CREAT)
    builder("fcntl.flock", lock, 2)
    put(builder, NAME)
    assert_held(waiters)
    builder("fcntl.flock", lock, 8)
    assert [waiter.result() for waiter in waiters] == [True] * 3
    assert waiters[0].read(f"{KEY}/{NAME}") == NAME.encode()
