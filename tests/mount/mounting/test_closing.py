# SPDX-License-Identifier: Apache-2.0
"""Closing a mount permanently: requests that wait fail, and a standby distinguishes the closing from the daemon's
death."""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import threading

import mounts
import pytest
from jobs import open_files, wait_until, waits_for_an_answer


def clean_environment(extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
    return {**env, **(extra or {})}


@pytest.fixture
def start():
    """start(*argv) starts a command of the program in the background, and returns its process."""
    started = []

    def begin(*argv, env=None):
        started.append(subprocess.Popen([mounts.PROGRAM, *map(str, argv)], text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=clean_environment(env)))
        return started[-1]

    yield begin
    for one in started:
        if one.poll() is None:
            one.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(10)
        one.kill()
        one.communicate()


def run_dir_of(mount):
    return pathlib.Path(mount.status()["run_dir"])


def is_waiting(process, path):
    """Returns true if a standby waits in flock(2) for this file."""
    inode = os.stat(path).st_ino
    return any("-> FLOCK" in line and f" {process.pid} " in line and f":{inode} " in line
               for line in pathlib.Path("/proc/locks").read_text().splitlines())


@pytest.fixture
def stand_by(start, store):
    def begin(mount, **options):
        lock = run_dir_of(mount) / "lock"
        process = start("mount", "--standby", "--store", store, mount.path, **options)
        wait_until(lambda: process.poll() is not None or is_waiting(process, lock),
                   what="the standby's wait")
        return process
    return begin


def wait_for_job(start, mount, job):
    process = start("job", "wait", job, "--mount", mount.path)

    def has_asked():
        return (any(file.endswith("/.cacheshim/control") for file in open_files(process.pid)) and
                waits_for_an_answer(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}")))

    wait_until(lambda: process.poll() is not None or has_asked(), what="the wait")
    return process


LOCK = "triton/KEY/lock"


@pytest.fixture
def lock_fds(mount, two_jobs):
    """A descriptor of one lock file in each of the two jobs."""
    for job in two_jobs:
        job("os.makedirs", job.path("triton/KEY"), exist_ok=True)
    return [job("os.open", job.path(LOCK), os.O_RDWR | os.O_CREAT) for job in two_jobs]


def start_waiting(mount, job, fd):
    before = mount.stats()["lock_waits"]
    job.start("fcntl.flock", fd, fcntl.LOCK_EX)
    wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")


def error_of(job, *call):
    with pytest.raises(OSError) as refused:
        job(*call) if call else job.result(timeout=10)
    return refused.value.errno


def record_of(mount):
    run_dir = run_dir_of(mount)
    return run_dir.with_name(run_dir.name + ".closed")


def test_sigterm_fails_waiting_lock_requests_with_enolck(mount, two_jobs, lock_fds):
    one, two = two_jobs
    one("fcntl.flock", lock_fds[0], fcntl.LOCK_EX)
    start_waiting(mount, two, lock_fds[1])
    os.kill(mount.daemon_pid(), signal.SIGTERM)
    assert error_of(two) == errno.ENOLCK


@pytest.mark.timeout_s(60)
def test_sigterm_ends_a_daemon_that_publishes_during_lookups(mount, start, scratch, two_jobs):
    """The daemon must exit although its invalidations may block:

    1. The kernel completes the invalidation of a name only when the pending lookups in the name's directory are
       answered.
    2. A process that has this directory open continues to send lookups after the mount is detached.
    """
    one, two = two_jobs
    cache = mount.base("own-cache")
    cache.mkdir(mode=0o777)
    wait_until(lambda: one.exists("own-cache"), what="the directory")
    one("fill_files", one.path("own-cache"), 500)
    directory = two("os.open", two.path("own-cache"), os.O_RDONLY)
    two.start("ask_until", f"/proc/self/fd/{directory}", str(scratch / "stop"))
    daemon = os.pidfd_open(mount.daemon_pid())
    end = start("job", "end", "one", "--success", "--mount", mount.path)
    wait_until(lambda: any(cache.iterdir()), seconds=30, what="publishing")
    signal.pidfd_send_signal(daemon, signal.SIGTERM)
    with os.fdopen(daemon) as file:
        assert select.select([file], [], [], 30)[0], "the daemon has not ended"
    (scratch / "stop").touch()
    assert two.result(timeout=10) > 0
    end.communicate(timeout=10)
    assert len(list(cache.iterdir())) == 500


@pytest.mark.parametrize("raw", ["flock", "records"])
def test_unmount_fails_lock_requests_of_waiting_processes(mount, start, two_jobs, lock_fds, raw):
    for job, fd in zip(two_jobs, lock_fds):
        job("os.close", fd)
        job.close()
    with open(mount.base(LOCK), "r+b") as holder:
        lock = fcntl.flock if raw == "flock" else fcntl.lockf
        lock(holder, fcntl.LOCK_EX)
        before = mount.stats()["lock_waits"]
        code = ("import errno, fcntl, sys\n"
                "try:\n    fcntl.%s(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX)\n"
                "except OSError as error:\n    sys.exit(error.errno)") % lock.__name__
        waiter = subprocess.Popen([sys.executable, "-S", "-c", code, mount.path / LOCK],
                                  env=clean_environment({"CACHESHIM_JOB": "one"}))
        try:
            wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")
            in_wait = wait_for_job(start, mount, "two")
            result = mount.unmount()
            assert result.returncode == 0, result.stderr
            assert waiter.wait(10) == errno.ENOLCK
            assert in_wait.wait(10) == 69
        finally:
            waiter.kill()
            waiter.wait()
    assert not mounts.is_mounted(mount.path)


@pytest.mark.parametrize("use", ["lock", "directory", "file"])
def test_waiters_keep_waiting_if_another_process_uses_the_mount(mount, two_jobs, lock_fds, use):
    user, waiter = two_jobs
    record = record_of(mount)
    with open(mount.base(LOCK), "rb") as raw:
        if use == "lock":
            user("fcntl.flock", lock_fds[0], fcntl.LOCK_EX)
        else:
            fcntl.flock(raw, fcntl.LOCK_EX)
            user("os.close", lock_fds[0])
            user.write("triton/KEY/file", b"x")
            in_use = user("os.open", user.path("triton/KEY", "file" if use == "file" else ""),
                          os.O_RDONLY)
        start_waiting(mount, waiter, lock_fds[1])
        result = mount.unmount()
        assert result.returncode == 1
        assert f"(pid {user.pid}, open file); nothing was unmounted" in result.stderr
        assert not record.exists() and mounts.is_mounted(mount.path)
        if use != "lock":
            user("os.close", in_use)
    if use == "lock":
        user("fcntl.flock", lock_fds[0], fcntl.LOCK_UN)
    waiter.result(timeout=10)


def test_with_a_grace_time_the_mount_closes_first_and_then_waits_for_its_users(mount, start, two_jobs,
                                                                              lock_fds):
    one, two = two_jobs
    one("fcntl.flock", lock_fds[0], fcntl.LOCK_EX)
    start_waiting(mount, two, lock_fds[1])
    record = record_of(mount)
    unmount = start("unmount", "--grace", 60, mount.path)
    assert error_of(two) == errno.ENOLCK
    assert json.loads(record.read_text()) == {"cycle": "0"}  # written when the grace time begins
    assert unmount.poll() is None and mounts.is_mounted(mount.path)
    assert error_of(two, "fcntl.flock", lock_fds[1], fcntl.LOCK_EX) == errno.ENOLCK
    assert error_of(two, "fcntl.flock", lock_fds[1], fcntl.LOCK_EX | fcntl.LOCK_NB) == errno.EAGAIN
    one("set_record", lock_fds[0])
    assert error_of(two, "set_record", lock_fds[1]) == errno.ENOLCK
    assert start("job", "wait", "one", "--mount", mount.path).wait(10) == 69
    one("fcntl.flock", lock_fds[0], fcntl.LOCK_UN)
    two("fcntl.flock", lock_fds[1], fcntl.LOCK_EX)  # succeeds without waiting
    assert unmount.poll() is None
    for job, fd in zip(two_jobs, lock_fds):
        job("os.close", fd)
    assert unmount.wait(20) == 0, unmount.communicate()
    assert json.loads(record.read_text()) == {"cycle": "0"}
    assert not mounts.is_mounted(mount.path)


def test_the_mount_reopens_if_its_users_stay_beyond_the_grace_time(mount, start, two_jobs,
                                                                      lock_fds):
    one, two = two_jobs
    one("fcntl.flock", lock_fds[0], fcntl.LOCK_EX)
    record = record_of(mount)
    unmount = start("unmount", "--grace", 3, mount.path)
    wait_until(record.exists, what="the record")
    assert unmount.wait(20) == 1
    assert f"pid {one.pid}, open file" in unmount.communicate()[1]
    assert not record.exists() and mounts.is_mounted(mount.path)
    start_waiting(mount, two, lock_fds[1])
    one("os.close", lock_fds[0])
    two.result(timeout=10)


def test_a_closing_is_reverted_if_its_requester_dies(mount, two_jobs, lock_fds):
    record = record_of(mount)
    one, two = two_jobs
    one("fcntl.flock", lock_fds[0], fcntl.LOCK_EX)
    assert "error" in mount.ask(op="close", seconds=1)
    assert mount.ask(op="close", seconds=3, in_use=True) == {"ok": True}
    assert error_of(two, "fcntl.flock", lock_fds[1], fcntl.LOCK_EX) == errno.ENOLCK
    wait_until(lambda: not record.exists(), what="the end of the closing")
    start_waiting(mount, two, lock_fds[1])
    assert mount.ask(op="waiting") == {"ok": True, "processes": [two.pid]}
    one("os.close", lock_fds[0])
    two.result(timeout=10)


def test_unmount_ends_waits_for_a_job(mount, start, two_jobs):
    two_jobs[0].listdir("triton")
    two_jobs[1].listdir("triton")
    for job in two_jobs:
        job.close()
    active = wait_for_job(start, mount, "one")
    mount.end_job("two")
    ended = wait_for_job(start, mount, "two")
    assert ended.wait(10) == 0
    result = mount.unmount()
    assert result.returncode == 0, result.stderr
    assert active.wait(10) == 69
    assert "being closed; job 'one' has not ended" in active.communicate()[1]


def test_job_wait_returns_0_for_a_successful_job_although_the_mount_closes(mount, start,
                                                                               two_jobs):
    for job in two_jobs:
        job.listdir("triton")
        job.close()
    waits = [wait_for_job(start, mount, "one") for _ in range(5)]
    mount.end_job("one")
    os.kill(mount.daemon_pid(), signal.SIGTERM)
    assert [wait.wait(10) for wait in waits] == [0] * 5


def test_a_mount_that_is_in_use_is_not_closed(mount, start, two_jobs):
    one = two_jobs[0]
    fd = one("os.open", one.path("triton"), os.O_RDONLY)
    wait = wait_for_job(start, mount, "one")
    result = mount.unmount()
    assert result.returncode == 1 and "in use" in result.stderr
    assert not run_dir_of(mount).with_name(run_dir_of(mount).name + ".closed").exists()
    assert mounts.is_mounted(mount.path)
    one("os.close", fd)
    again = wait_for_job(start, mount, "one")  # after the refused unmount, `job wait` waits again
    with pytest.raises(subprocess.TimeoutExpired):
        again.wait(0.3)
    assert wait.poll() is None


@pytest.mark.parametrize("how", ["unmount", "SIGTERM"])
def test_a_standby_leaves_when_the_mount_is_closed_for_good(mount, stand_by, how):
    standby = stand_by(mount)
    if how == "unmount":
        assert mount.unmount().returncode == 0
    else:
        os.kill(mount.daemon_pid(), signal.SIGTERM)
    assert standby.wait(10) == 0
    assert "closed for good" in standby.communicate()[1]
    assert not mounts.is_mounted(mount.path)


def test_a_standby_takes_over_from_a_daemon_that_died(mount, stand_by, two_jobs):
    one, two = two_jobs
    one.write("triton/file", b"of one")
    standby = stand_by(mount)
    second = stand_by(mount)
    mount.kill_daemon()
    first, other = (standby, second)
    wait_until(lambda: not mounts_dead(mount), what="the new mount")
    pid = mount.daemon_pid()
    assert pid in (first.pid, other.pid)
    serving, waiting = (first, other) if pid == first.pid else (other, first)
    assert two.listdir("triton") == []
    assert waiting.poll() is None
    assert mount.unmount().returncode == 0
    assert serving.wait(20) == 0 and waiting.wait(20) == 0


def mounts_dead(mount):
    try:
        os.stat(mount.path / ".cacheshim/version")
        return False
    except OSError:
        return True


def test_a_recorded_closing_ends_a_standby_at_once(mount, stand_by, start, store):
    run_dir = run_dir_of(mount)
    assert mount.unmount().returncode == 0
    record = run_dir.with_name(run_dir.name + ".closed")
    assert json.loads(record.read_text()) == {"cycle": "0"}
    standby = start("mount", "--standby", "--store", store, mount.path)
    assert standby.wait(10) == 0
    record.write_text('{"cycle": "0", "more": [1, 2]}')  # as a later version might write it
    assert start("mount", "--standby", "--store", store, mount.path).wait(10) == 0


def test_a_standby_ignores_a_recorded_closing_of_another_cycle(mount, stand_by, start, store):
    assert mount.unmount().returncode == 0
    standby = start("mount", "--standby", "--store", store, mount.path,
                    env={"CACHESHIM_CYCLE": "1"})
    wait_until(lambda: mounts.is_mounted(mount.path) and not mounts_dead(mount),
               what="the standby's mount")
    assert standby.poll() is None
    assert mount.unmount().returncode == 0
    assert standby.wait(20) == 0


def test_a_mount_that_serves_forgets_the_closing_before_it(mount, mount_store, stand_by):
    assert mount.unmount().returncode == 0
    mount.mount()
    standby = stand_by(mount)
    assert standby.poll() is None
    mount.kill_daemon()
    wait_until(lambda: not mounts_dead(mount), what="the standby's mount")
    assert mount.daemon_pid() == standby.pid


def test_ten_thousand_jobs_are_listed_consistently(mount):
    for number in range(10_000):
        mount.ask(op="job-start", job=f"job-{number:05}", cycle="0", run=False)
    listed = json.loads(mount.cli("job", "list", "--json").stdout)
    assert [job["job"] for job in listed if job["job"].startswith("job-")] == [
        f"job-{number:05}" for number in range(10_000)]
    assert {job["state"] for job in listed} == {"active"}
    head, *lines = mount.cli("job", "list").stdout.splitlines()
    assert head.split() == ["JOB", "CYCLE", "STATE", "OUTCOME", "UID", "STARTED", "FILES", "RUNS"]
    assert len(lines) == len(listed)
    first = next(line for line in lines if line.startswith("job-00007 "))
    assert first.split()[1:5] == ["0", "active", "none", "-"] and first.split()[-2:] == ["0", "0"]


def begin_and_end_jobs(mount, stop):
    """Starts and ends jobs until `stop` is set: one or two of them are active at any time."""
    mount.ask(op="job-start", job="zz-0", cycle="0", run=False)
    number = 0
    while not stop.is_set():
        mount.ask(op="job-start", job=f"zz-{number + 1}", cycle="0", run=False)
        mount.ask(op="job-end", job=f"zz-{number}", outcome="success", run=False)
        number += 1


@pytest.mark.parametrize("words", [("--json",), ()], ids=["objects", "rows"])
def test_a_list_is_consistent_while_jobs_begin_and_end(mount, words):
    for number in range(3000):
        mount.ask(op="job-start", job=f"aa-{number:05}", cycle="0", run=False)
    stop = threading.Event()
    changes = threading.Thread(target=begin_and_end_jobs, args=(mount, stop))
    changes.start()
    try:
        seen = set()
        for _ in range(30):
            answer = mount.ask(op="job-list", rows=not words)
            if words:
                states = {job["job"]: job["state"] for job in answer["jobs"]}
            else:
                states = dict(line.split("\t")[0:3:2] for line in answer["rows"].splitlines())
            ours = {job: state for job, state in states.items() if job.startswith("zz-")}
            seen.add(len(ours))
            assert not ours or 1 <= list(ours.values()).count("active") <= 2, ours
        assert len(seen) > 1
    finally:
        stop.set()
        changes.join()


def test_records_of_older_and_newer_versions_are_listed(mount, two_jobs):
    for job in two_jobs:
        job.write("triton/file", b"x")
        job.close()
    mount.kill_daemon()
    layers = mount.store / ".cacheshim/layers"
    old, = layers.glob("one/*/meta.json")
    new, = layers.glob("two/*/meta.json")
    old.write_text(json.dumps({"job": "one", "node": json.loads(old.read_text())["node"]}))
    record = json.loads(new.read_text())
    new.write_text(json.dumps({**record, "version": 99, "teams": ["a", {"b": 1}], "cycle": "7"}))
    mount.mount()
    listed = {job["job"]: job for job in json.loads(mount.cli("job", "list", "--json").stdout)}
    assert (listed["one"]["cycle"], listed["one"]["uid"], listed["one"]["started"],
            listed["one"]["state"]) == ("0", None, 0, "active")
    assert (listed["two"]["cycle"], listed["two"]["uid"], listed["two"]["started"]) == (
        "7", 20002, record["started"])
    lines = mount.cli("job", "list").stdout.splitlines()
    assert len(lines) == 3
    assert mount.layer_files("one") == {"triton/file": b"x"}  # the job's files still exist
