# SPDX-License-Identifier: Apache-2.0
"""A mount that is closed for good: who waits is sent home, and who stands by knows it from a death."""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import time

import mounts
import pytest
from jobs import open_files, wait_until


def clean_environment(extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
    return {**env, **(extra or {})}


@pytest.fixture
def start():
    """Starts a command of the program beside the test."""
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
    """Whether a standby sleeps in flock(2) on this file."""
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
    wait_until(lambda: process.poll() is not None or any(
        file.endswith("/.cacheshim/control") for file in open_files(process.pid)), what="the wait")
    return process


def test_sigterm_gives_those_who_wait_for_a_lock_enolck(mount, two_jobs):
    one, two = two_jobs
    for job in two_jobs:
        job("os.makedirs", job.path("triton/KEY"), exist_ok=True)
    fds = [job("os.open", job.path("triton/KEY/lock"), os.O_RDWR | os.O_CREAT) for job in two_jobs]
    one("fcntl.flock", fds[0], fcntl.LOCK_EX)
    before = mount.stats()["lock_waits"]
    two.start("fcntl.flock", fds[1], fcntl.LOCK_EX)
    wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")
    os.kill(mount.daemon_pid(), signal.SIGTERM)
    with pytest.raises(OSError) as refused:
        two.result(timeout=10)
    assert refused.value.errno == errno.ENOLCK


def test_unmount_sends_those_home_who_wait_for_a_job(mount, start, two_jobs):
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


def test_who_waits_for_a_job_that_ends_well_leaves_with_0_though_the_mount_goes(mount, start,
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
    again = wait_for_job(start, mount, "one")  # waits can be had again
    with pytest.raises(subprocess.TimeoutExpired):
        again.wait(0.3)
    assert wait.poll() in (None, 69)


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


def test_a_closing_that_is_on_record_sends_a_standby_home_at_once(mount, stand_by, start, store):
    run_dir = run_dir_of(mount)
    assert mount.unmount().returncode == 0
    record = run_dir.with_name(run_dir.name + ".closed")
    assert json.loads(record.read_text()) == {"cycle": "0"}
    standby = start("mount", "--standby", "--store", store, mount.path)
    assert standby.wait(10) == 0
    record.write_text('{"cycle": "0", "more": [1, 2]}')  # of a later version
    assert start("mount", "--standby", "--store", store, mount.path).wait(10) == 0


def test_a_closing_of_another_cycle_does_not_fool_a_standby(mount, stand_by, start, store):
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


def ask(mount, request):
    fd = os.open(mount.path / ".cacheshim/control", os.O_RDWR)
    try:
        os.write(fd, json.dumps(request).encode())
        data = b""
        while piece := os.read(fd, 1 << 16):
            data += piece
        return json.loads(data.splitlines()[-1])
    finally:
        os.close(fd)


def test_ten_thousand_jobs_are_listed_at_one_moment(mount):
    for number in range(10_000):
        ask(mount, {"op": "job-start", "job": f"job-{number:05}", "cycle": "0", "run": False})
    listed = json.loads(mount.cli("job", "list", "--json").stdout)
    assert [job["job"] for job in listed if job["job"].startswith("job-")] == [
        f"job-{number:05}" for number in range(10_000)]
    assert {job["state"] for job in listed} == {"active"}
    head, *lines = mount.cli("job", "list").stdout.splitlines()
    assert head.split() == ["JOB", "CYCLE", "STATE", "OUTCOME", "UID", "STARTED", "FILES", "RUNS"]
    assert len(lines) == len(listed)
    first = next(line for line in lines if line.startswith("job-00007 "))
    assert first.split()[1:5] == ["0", "active", "none", "-"] and first.split()[-2:] == ["0", "0"]
