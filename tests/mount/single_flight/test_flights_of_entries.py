# SPDX-License-Identifier: Apache-2.0
"""Single flight for entries that are built elsewhere and renamed into place: waiters wait for a directory's name."""

import ctypes
import errno
import os
import select
import signal

import mounts
import pytest
from direct import warm
from jobs import wait_until

PROFILE = """name = "staged"
evidence = "run"
[[entry]]
path = "kernels/*"
complete = ["done"]
renamed = true
{more}
[class]
scratch = ["tmp", "*.tmp"]
flight = ["kernels/k*"]
"""
TOP = "staged"
KEY = "k1"
ENTRY = f"{TOP}/kernels/{KEY}"
MS_BIND = 0x1000


@pytest.fixture
def profile():
    return PROFILE.format(more="one_by_one = true")


@pytest.fixture
def store(store, own_profiles, profile):
    (own_profiles / "staged.toml").write_text(profile)
    (store / TOP / "kernels").mkdir(parents=True)
    return store


@pytest.fixture(params=["plain", "preloaded"])
def process_of(request, job_of, shimmed_job_of):
    """Starts a process of a job on a mount."""
    def make(mount, job, uid, **options):
        if request.param == "plain":
            return job_of(mount, job, uid, **options)
        return warm(mount, shimmed_job_of(mount, job, uid, **options))

    return make


@pytest.fixture
def crowd(mount, process_of):
    """Starts processes, each with its own job and user."""
    return lambda count: [process_of(mount, f"job{number}", 20001 + number)
                          for number in range(count)]


@pytest.fixture
def flights(mount):
    return lambda: {name.removeprefix("flight_"): value for name, value in mount.stats().items()
                    if name.startswith("flight_")}


def begin(builder, key=KEY):
    """Makes the process the builder of a missing entry, by a lookup. A child of the process uses CPU time, as a
    compiler does."""
    builder("keep_busy")
    assert not builder.exists(f"{TOP}/kernels/{key}")


def start_asking(process, path=ENTRY):
    process.start("os.path.lexists", process.path(path))


def put(process, key=KEY):
    assert process("staged_put", process.path(TOP), key)


def has_answered(process):
    return select.select([process.stdout_fd], [], [], 0)[0]


def wait_for_waits(mount, count):
    wait_until(lambda: mount.stats()["flight_waits"] >= count, what=f"{count} waits")


# ---- calls that wait

ASKS = {
    "stat": (lambda at: ("os.path.exists", at(ENTRY)), True),
    "lstat": (lambda at: ("os.path.lexists", at(ENTRY)), True),
    "access": (lambda at: ("os.access", at(ENTRY), os.R_OK), True),
    "chdir": (lambda at: ("os.chdir", at(ENTRY)), None),
    "list": (lambda at: ("os.listdir", at(ENTRY)), ["done", "kernel.bin"]),
    "stat-of-a-file": (lambda at: ("os.path.exists", at(f"{ENTRY}/done")), True),
    "open-of-a-file": (lambda at: ("read_file", at(f"{ENTRY}/kernel.bin")), b"built"),
}


@pytest.mark.parametrize("ask", ASKS)
def test_read_only_calls_wait_for_the_entry(mount, crowd, flights, ask):
    call, expected = ASKS[ask]
    builder, other = crowd(2)
    begin(builder)
    other.start(*call(other.path))
    wait_for_waits(mount, 1)
    put(builder)
    found = other.result()
    assert (sorted(found) if ask == "list" else found) == expected
    assert flights() == {"leases": 1, "waits": 1, "hits": 1, "timeouts": 0, "failures": 0}


def test_processes_of_one_view_wait_while_the_builder_sees_the_real_state(mount, process_of, flights):
    builder, *others = [process_of(mount, "one", 20001) for _ in range(4)]
    begin(builder)
    for other in others:
        start_asking(other)
    wait_for_waits(mount, 3)
    assert not builder.exists(ENTRY)
    assert builder("ask_in_child", builder.path(ENTRY)) == 0
    assert KEY not in builder.listdir(f"{TOP}/kernels"), "a placeholder is no name"
    put(builder)
    assert [other.result() for other in others] == [True] * 3
    assert flights()["hits"] == 3


@pytest.mark.parametrize("jobs", [1, 6])
def test_processes_that_need_the_same_entries_build_each_once(mount, process_of, flights, jobs):
    keys = [f"k{number}" for number in range(8)]
    crowd = [process_of(mount, f"job{number % jobs}", 20001 + number % jobs) for number in range(6)]
    for process in crowd:
        process.start("staged_get_all", process.path(TOP), keys)
    built = [key for process in crowd for key in process.result()]
    assert sorted(built) == keys
    assert (flights()["timeouts"], flights()["failures"]) == (0, 0)


def test_an_entry_that_a_child_renames_into_place_ends_the_wait(mount, crowd):
    builder, other = crowd(2)
    begin(builder)
    start_asking(other)
    wait_for_waits(mount, 1)
    assert builder("staged_put_in_child", builder.path(TOP), KEY) == 0
    assert other.result()


def test_an_entry_whose_directory_is_made_first_ends_the_wait_when_it_is_complete(mount, crowd):
    """DeepGEMM 2.1 creates the directory, and renames the files into it."""
    builder, other = crowd(2)
    begin(builder)
    start_asking(other)
    wait_for_waits(mount, 1)
    builder("os.makedirs", builder.path(ENTRY), exist_ok=True)
    for name in ("kernel.bin", "done"):
        builder.write(f"{ENTRY}/{name}.tmp", b"built")
        assert not has_answered(other)
        builder("os.replace", builder.path(ENTRY, f"{name}.tmp"), builder.path(ENTRY, name))
    assert other.result()
    assert other.read(f"{ENTRY}/kernel.bin") == b"built"


def test_a_view_that_is_bound_elsewhere_waits_too(mount, crowd, scratch):
    builder, other = crowd(2)
    other.exists(TOP)
    bound = scratch / "bound"
    bound.mkdir()
    begin(builder)
    mounts.run("mount", "--bind", mount.path / ".jobs" / other.job, bound, check=True)
    try:
        other.start("os.path.exists", str(bound / ENTRY))
        wait_for_waits(mount, 1)
        put(builder)
        assert other.result()
    finally:
        mounts.run("umount", bound, check=True)


# ---- calls that do not wait: their results are those for an absent name

CALLS = {
    "mkdir": (("os.mkdir", "{entry}"), None),
    "rmdir": (("os.rmdir", "{entry}"), errno.ENOENT),
    "unlink": (("os.unlink", "{entry}"), errno.ENOENT),
    "rename-a-directory": (("os.rename", "{own}/directory", "{entry}"), None),
    "rename-a-file": (("os.rename", "{own}/file", "{entry}"), None),
    "rename-noreplace": (("rename_noreplace", "{own}/directory", "{entry}"), None),
    "rename-from": (("os.rename", "{entry}", "{own}/new"), errno.ENOENT),
    "link": (("os.link", "{own}/file", "{entry}"), None),
    "symlink": (("os.symlink", "target", "{entry}"), None),
    "readlink": (("os.readlink", "{entry}"), errno.ENOENT),
    "create": (("os.open", "{entry}", os.O_CREAT | os.O_EXCL | os.O_RDWR), None),
    "open-a-path": (("os.open", "{entry}", os.O_PATH), errno.ENOENT),
    "chmod": (("os.chmod", "{entry}", 0o700), errno.ENOENT),
    "statvfs": (("os.statvfs", "{entry}"), errno.ENOENT),
    "mkdir-below": (("os.mkdir", "{entry}/below"), errno.ENOENT),
    "create-below": (("write_file", "{entry}/file", b""), errno.ENOENT),
}


def error_of(process, call):
    try:
        process(*call)
    except OSError as error:
        return error.errno
    return None


@pytest.mark.parametrize("call", CALLS)
def test_calls_that_make_or_move_the_name_find_it_absent(mount, process_of, flights, call):
    words, expected = CALLS[call]
    builder = process_of(mount, "one", 20001)
    waiter, other = process_of(mount, "two", 20002), process_of(mount, "two", 20002)
    other("os.makedirs", other.path(TOP, "own/directory"))
    other.write(f"{TOP}/own/file", b"own")
    begin(builder)
    start_asking(waiter)
    wait_for_waits(mount, 1)
    own = other.path(TOP, "own")
    error = error_of(other, [word.format(entry=other.path(ENTRY), own=own)
                             if isinstance(word, str) else word for word in words])
    assert error == expected
    put(builder)
    assert waiter.result()
    assert (flights()["timeouts"], flights()["failures"]) == (0, 0)


def test_processes_make_the_directory_at_once_whoever_builds(mount, crowd, flights):
    """os.makedirs() calls mkdir(2) first. If that fails with EEXIST, the name must be a directory."""
    builder, *others = crowd(4)
    begin(builder)
    for other in others:
        other.start("os.makedirs", other.path(ENTRY), exist_ok=True)
    for other in others:
        other.result()
    assert flights()["waits"] == 0


def test_nothing_can_be_bound_to_a_name_that_is_waited_for(mount, process_of, scratch):
    builder, waiter = process_of(mount, "one", 20001), process_of(mount, "two", 20002)
    begin(builder)
    start_asking(waiter)
    wait_for_waits(mount, 1)
    target = os.fsencode(mount.path / ".jobs/two" / ENTRY)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(os.fsencode(scratch), target, None, MS_BIND, None) == -1
    assert ctypes.get_errno() == errno.ENOENT
    put(builder)
    assert waiter.result()


def test_other_names_are_not_waited_for(mount, crowd, flights):
    one, two = crowd(2)
    one("keep_busy")
    for process in (one, two):
        assert not process.exists(f"{TOP}/kernels/other")
    assert flights()["leases"] == 0


# ---- builds that fail

@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_builder_that_is_gone_hands_over(mount, crowd, flights, end):
    builder, following, last = crowd(3)
    begin(builder)
    for number, process in enumerate((following, last)):
        process("keep_busy")
        start_asking(process)
        wait_for_waits(mount, number + 1)
    os.kill(builder.pid, signal.SIGKILL if end == "killed" else signal.SIGSTOP)
    assert not following.result()
    put(following)
    assert last.result()
    if end == "stopped":
        os.kill(builder.pid, signal.SIGCONT)
    assert flights() == {"leases": 2, "waits": 2, "hits": 1, "timeouts": 0, "failures": 0}


def test_a_builder_that_looks_up_another_entry_has_failed_the_previous_one(mount, crowd, flights):
    builder, other, late = crowd(3)
    begin(builder)
    start_asking(other, f"{ENTRY}/done")
    wait_for_waits(mount, 1)
    assert not builder.exists(f"{TOP}/kernels/k2/done")
    assert not other.result(), "it builds for itself"
    assert not late.exists(ENTRY), "nobody waits for that name any more"
    assert (flights()["failures"], flights()["waits"]) == (1, 1)
    put(other)
    assert late.exists(ENTRY)


def test_a_process_that_builds_nothing_delays_waiters_for_a_second(mount, crowd,
                                                                                 flights):
    asker, other = crowd(2)
    assert not asker.exists(ENTRY)
    asker("keep_busy")
    start_asking(other)
    wait_for_waits(mount, 1)
    asker("stop_being_busy")
    assert not other.result()
    assert (flights()["failures"], flights()["timeouts"]) == (1, 0)


def test_a_builder_other_than_the_leaseholder_does_not_wait(mount, process_of, flights):
    """A compile server looks up the entry before it builds it; its client has the lease."""
    client, server = process_of(mount, "one", 20001), process_of(mount, "one", 20001)
    assert not client.exists(ENTRY)
    assert server("staged_get_all", server.path(TOP), [KEY]) == [KEY]
    assert flights()["timeouts"] == 0
    assert client.exists(ENTRY)


def test_a_builder_whose_thread_has_ended_has_failed(mount, crowd, flights):
    builder, other = crowd(2)
    builder("keep_busy")
    assert not builder("ask_in_thread", builder.path(ENTRY))
    assert not other.exists(ENTRY)
    assert flights()["timeouts"] == 0


@pytest.mark.parametrize("end", ["build", "kill", "idle"])
def test_daemons_of_one_store_wait_for_each_other(mount_store, store, process_of, end):
    first, second = mount_store(store), mount_store(store)
    builder, other = process_of(first, "one", 20001), process_of(second, "two", 20002)
    begin(builder)
    start_asking(other)
    wait_for_waits(second, 1)
    if end == "build":
        put(builder)
    elif end == "kill":
        builder.kill()
    else:
        builder("stop_being_busy")
    assert other.result() == (end == "build")
    assert second.stats()["flight_timeouts"] == 0


@pytest.mark.parametrize("profile", [PROFILE.format(more="")])
def test_builds_that_need_each_other_close_no_cycle(mount, crowd, flights):
    one, two = crowd(2)
    begin(one, "k1")
    begin(two, "k2")
    start_asking(one, f"{TOP}/kernels/k2")
    wait_for_waits(mount, 1)
    assert not two.exists(f"{TOP}/kernels/k1"), "the other waits for it"
    put(two, "k1")
    put(two, "k2")
    assert one.result()
    assert (flights()["timeouts"], flights()["failures"]) == (0, 0)


def test_builders_that_are_killed_at_any_time_leave_no_waiter(mount, crowd, flights):
    keys = [f"k{number}" for number in range(100)]
    processes = crowd(6)
    for process in processes:
        process.start("staged_get_all", process.path(TOP), keys)
    for victim, count in zip(processes[:3], (20, 40, 60)):
        wait_until(lambda: mount.stats()["entries_published"] >= count, seconds=60)
        victim.kill()
    for process in processes[3:]:
        process.result()
    assert {path.name for path in mount.base(f"{TOP}/kernels").iterdir()} == set(keys)
    assert flights()["timeouts"] == 0
