# SPDX-License-Identifier: Apache-2.0
"""Small lock files named `*.lock` in caches without a profile: from the first lock request on, all jobs share the
file."""

import fcntl
import os
import shutil
import subprocess
import sys

import mounts
import pytest
from jobs import wait_until

NAME = "other/engines/model.engine.lock"
OPEN = os.O_RDWR | os.O_CREAT
KINDS = pytest.mark.parametrize("kind", ["flock", "record"])


def prepare(job, name=NAME):
    job("os.makedirs", os.path.dirname(job.path(name)), exist_ok=True)
    return job


def create(job, name=NAME, flags=OPEN, mode=0o644):
    prepare(job, name)
    return job("os.open", job.path(name), flags, mode)


def lock(job, fd, kind="flock"):
    if kind == "flock":
        job("fcntl.flock", fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        job("set_record", fd, 0, 0, fcntl.F_SETLK)


def unlock(job, fd, kind="flock"):
    if kind == "flock":
        job("fcntl.flock", fd, fcntl.LOCK_UN)
    else:
        job("set_record", fd, 0, 0, fcntl.F_SETLK, fcntl.F_UNLCK)


def can_lock(job, fd, kind="flock"):
    """Returns true if the job can lock its open file immediately; unlocks it."""
    try:
        lock(job, fd, kind)
    except BlockingIOError:
        return False
    unlock(job, fd, kind)
    return True


def flock_raw(path):
    """Runs flock(1) on a file of the bare store; returns true if it gets the lock."""
    return subprocess.run(["flock", "--nonblock", path, "true"], check=False).returncode == 0


def start_waiting(mount, job, fd):
    before = mount.stats()["lock_waits"]
    job.start("fcntl.flock", fd, fcntl.LOCK_EX)
    wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")


@KINDS
def test_jobs_exclude_each_other_from_the_first_lock_on(mount, two_jobs, kind):
    one, two = two_jobs
    fds = [create(job) for job in two_jobs]  # both jobs open the file before either locks it
    assert not mount.base("other").exists()
    lock(one, fds[0], kind)
    base = mount.base(NAME)
    assert base.stat().st_size == 0 and base.stat().st_mode & 0o777 == 0o666
    assert not can_lock(two, fds[1], kind)
    unlock(one, fds[0], kind)
    assert can_lock(two, fds[1], kind)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
def test_a_job_finds_the_lock_file_of_another_and_waits_for_it(mount, two_jobs, flags):
    one, two = two_jobs
    lock(one, create(one))
    wait_until(lambda: two.exists(NAME), what="the lock file in the other view")
    fd = two("os.open", two.path(NAME), flags)
    assert not can_lock(two, fd)
    start_waiting(mount, two, fd)
    one.kill()
    two.result(timeout=10)


def test_record_locks_keep_their_ranges_and_f_getlk_sees_them(mount, two_jobs):
    one, two = two_jobs
    one("set_record", create(one), 10, 20)
    create(two)
    assert two("find_record", two.path(NAME)) == (fcntl.F_WRLCK, 10, 20, one.pid)
    assert two("try_record", two.path(NAME), 0, 10)
    assert not two("try_record", two.path(NAME), 29, 1)


def test_f_getlk_before_the_first_lock_request_keeps_no_lock_private(two_jobs):
    one, two = two_jobs
    fds = [create(job) for job in two_jobs]
    for job, fd in zip(two_jobs, fds):
        job("set_record", fd, 0, 0, fcntl.F_GETLK)
    lock(one, fds[0], "record")
    assert not can_lock(two, fds[1], "record")
    unlock(one, fds[0], "record")
    lock(two, fds[1], "record")
    assert not can_lock(one, fds[0], "record")


def test_a_process_on_the_bare_store_excludes_views_and_is_excluded(mount, two_jobs):
    one, two = two_jobs
    fd = create(one)
    lock(one, fd)
    base = mount.base(NAME)
    assert not flock_raw(base)
    unlock(one, fd)
    assert flock_raw(base)
    with open(base, "rb") as raw:
        fcntl.flock(raw, fcntl.LOCK_EX)
        assert not can_lock(one, fd)
        assert not can_lock(two, create(two))
        start_waiting(mount, one, fd)
    one.result(timeout=10)


def test_a_lock_file_that_the_base_already_has_is_used(mount_store, store, job_of):
    (store / "other/engines").mkdir(parents=True)
    (store / NAME).write_bytes(b"4711\n")
    mount = mount_store(store)
    one = job_of(mount, "one", 20001)
    fd = one("os.open", one.path(NAME), os.O_RDWR)
    with open(store / NAME, "rb") as raw:
        fcntl.flock(raw, fcntl.LOCK_EX)
        assert not can_lock(one, fd)
    assert can_lock(one, fd)
    assert (store / NAME).read_bytes() == b"4711\n"


def test_two_mounts_of_one_store_exclude_each_other(mount_store, store, job_of):
    jobs = [job_of(mount_store(store), name, 20001) for name in ("one", "two")]
    fds = [create(job) for job in jobs]
    lock(jobs[0], fds[0])
    assert not can_lock(jobs[1], fds[1])


def test_preloaded_processes_exclude_each_other(mount, shimmed_job_of):
    one, two = (shimmed_job_of(mount, name, uid) for name, uid in (("one", 20001), ("two", 20002)))
    fd = create(one)
    lock(one, fd)
    wait_until(lambda: two.exists(NAME), what="the lock file in the other view")
    direct = two("os.open", two.path(NAME), os.O_RDONLY)
    assert not can_lock(two, direct)
    assert not flock_raw(mount.base(NAME))
    unlock(one, fd)
    assert can_lock(two, direct)


def test_writes_to_a_jobs_lock_file_stay_its_own(mount, two_jobs):
    one, two = two_jobs
    fds = [create(job) for job in two_jobs]
    one("os.write", fds[0], b"pid 1\n")  # before the first lock request
    lock(one, fds[0])
    one("os.write", fds[0], b"still 1\n")
    assert not can_lock(two, fds[1])
    assert mount.base(NAME).read_bytes() == b""
    assert one.read(NAME) == b"pid 1\nstill 1\n" and two.read(NAME) == b""


def test_a_larger_file_is_locked_only_in_its_job(mount, two_jobs):
    one, two = two_jobs
    fds = [create(job) for job in two_jobs]
    for job, fd in zip(two_jobs, fds):
        job("os.write", fd, b"x" * 4097)
    lock(one, fds[0])
    lock(two, fds[1])
    assert not mount.base("other").exists()
    one("os.ftruncate", fds[0], 0)  # while a process holds a private lock, later locks are private too
    assert not one("try_flock_path", one.path(NAME))


def test_a_lock_file_that_grows_while_it_is_locked_stays_shared(two_jobs):
    one, two = two_jobs
    fds = [create(job) for job in two_jobs]
    lock(one, fds[0])
    one("os.write", fds[0], b"x" * 5000)
    assert not one("try_flock_path", one.path(NAME))
    assert not can_lock(two, fds[1])


@pytest.mark.parametrize("name", ["other/model.lck", "other/lock", "other/model.lock.tmp",
                                  "triton/KEY/index.lock"])
def test_other_names_are_locked_only_in_their_job(mount, two_jobs, name):
    one, two = two_jobs
    fds = [create(job, name) for job in two_jobs]
    lock(one, fds[0])
    lock(two, fds[1])
    assert not mount.base(name).exists()


def test_a_baton_stays_private(mount, two_jobs):
    """A process creates a baton with O_EXCL, removes it to release it, and never locks it."""
    one, two = two_jobs
    batons = [create(job, flags=OPEN | os.O_EXCL) for job in two_jobs]
    for job, fd in zip(two_jobs, batons):
        job("os.close", fd)
    one("os.unlink", one.path(NAME))
    mount.end_job("one")
    mount.end_job("two")
    assert not mount.base("other").exists()


def test_the_end_of_the_job_publishes_the_engine_and_no_lock(mount, two_jobs):
    one, two = two_jobs
    for job in two_jobs:
        fd = create(job)
        lock(job, fd)
        job("os.write", fd, b"%d\n" % job.pid)
        if not job.exists("other/engines/model.engine"):
            job.write("other/engines/model.engine", b"built once")
        job("os.close", fd)
        mount.end_job(job.job)
    assert mount.base("other/engines/model.engine").read_bytes() == b"built once"
    assert mount.base(NAME).read_bytes() == b""
    assert mount.stats()["publish_conflicts"] == 0


def test_a_lock_file_with_data_is_published_if_nobody_has_locked_it(mount, job_of):
    one = job_of(mount, "one", 20001)
    prepare(one)
    one.write("other/engines/Cargo.lock", b"version = 3\n")
    mount.end_job("one")
    assert mount.base("other/engines/Cargo.lock").read_bytes() == b"version = 3\n"


def test_explain_reports_that_a_lock_file_is_not_published(mount, job_of):
    one = job_of(mount, "one", 20001)
    fd = create(one)
    lock(one, fd)
    one("os.write", fd, b"1\n")
    said = mount.cli("explain", mount.path / NAME, "--job", "one").stdout
    assert "a lock file is never published" in said


@pytest.mark.parametrize("how", ["never", "stranger"])
def test_a_job_that_may_not_publish_has_locks_of_its_own(mount_store, store, scratch, job_of, how):
    config = scratch / "config.toml"
    config.write_text('[publish]\nallow = { users = [20001] }\n' if how == "stranger" else "")
    mount = mount_store(store, "--config", config)
    trusted = job_of(mount, "one", 20001)
    refused = job_of(mount, "two", 20002, env={"CACHESHIM_PUBLISH": "never"} if how == "never" else {})
    own = create(refused)
    lock(refused, own)
    assert not mount.base("other").exists()
    assert not refused("try_flock_path", refused.path(NAME))  # this lock excludes only the job's own processes
    lock(trusted, create(trusted))
    assert mount.base(NAME).exists()
    assert refused("read_file", refused.path(NAME)) == b""


def test_a_stranger_who_only_reads_the_file_does_not_hold_others_up(mount_store, store, scratch, job_of):
    config = scratch / "config.toml"
    config.write_text('[publish]\nallow = { users = [20001] }\n')
    (store / "other/engines").mkdir(parents=True)
    (store / NAME).touch()
    mount = mount_store(store, "--config", config)
    trusted, stranger = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    fd = stranger("os.open", stranger.path(NAME), os.O_RDONLY)
    assert stranger("find_record", stranger.path(NAME)) is None
    lock(stranger, fd)
    lock(trusted, trusted("os.open", trusted.path(NAME), os.O_RDONLY))


def test_a_directory_that_is_closed_to_others_gets_no_lock_file(mount, two_jobs):
    one, two = two_jobs
    for job in two_jobs:
        job("os.makedirs", job.path("other/engines"), 0o700)
        job("os.chmod", job.path("other/engines"), 0o700)
    lock(one, create(one))
    lock(two, create(two))
    assert not mount.base("other").exists()


def test_unlink_removes_the_name_of_the_job_and_no_lock(mount, two_jobs):
    one, two = two_jobs
    fds = [create(job) for job in two_jobs]
    lock(one, fds[0])
    one("os.unlink", one.path(NAME))
    assert not one.exists(NAME) and two.exists(NAME)
    assert not can_lock(two, fds[1])
    again = create(one)  # creates the name again; the lock of that name is still held
    assert not can_lock(one, again)
    one("os.close", fds[0])
    wait_until(lambda: can_lock(one, again), what="the lock")
    lock(two, fds[1])
    assert not can_lock(one, again)


def test_a_rename_does_not_split_the_processes_of_a_job(mount, job_of):
    one, same = (job_of(mount, "one", 20001) for _ in range(2))
    lock(one, create(one))
    one("os.rename", one.path(NAME), one.path("other/engines/new.lock"))
    assert not same("try_flock_path", same.path("other/engines/new.lock"))


def test_a_lock_file_that_is_removed_beside_the_mount_is_made_again(mount, two_jobs):
    one, two = two_jobs
    fds = [create(job) for job in two_jobs]
    lock(one, fds[0])
    unlock(one, fds[0])
    base = mount.base(NAME)
    with open(base, "rb") as raw:
        fcntl.flock(raw, fcntl.LOCK_EX)
        start_waiting(mount, one, fds[0])
        base.unlink()  # as filelock does at a release
    one.result(timeout=10)  # the daemon has created the file again and locked it
    assert base.exists() and not flock_raw(base)
    assert not can_lock(two, fds[1])
    unlock(one, fds[0])
    assert can_lock(two, fds[1])


HOLD = """
import filelock, os, sys, time
path, log, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
for number in range(rounds):
    with filelock.FileLock(path, timeout=60):
        os.write(out, b"in\\n")
        time.sleep(0.0005)
        os.write(out, b"out\\n")
"""


@pytest.mark.parametrize("preloaded", [False, True])
@pytest.mark.parametrize("with_raw", [False, True])
def test_python_filelock_in_two_jobs_and_beside_them(mount, scratch, preloaded, with_raw):
    pytest.importorskip("filelock")
    path, log, rounds = mount.path / NAME, scratch / "log", 100
    running = []
    for job in ("one", "two"):
        env = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
        env["CACHESHIM_JOB"] = job
        if preloaded:
            env |= {"LD_PRELOAD": mounts.LIBRARY, "CACHESHIM_MOUNT": str(mount.path)}
        subprocess.run(["mkdir", "-p", path.parent], env=env, check=True)
        running.append(subprocess.Popen([sys.executable, "-c", HOLD, path, log, str(rounds)], env=env))
    if with_raw:
        mount.base(NAME).parent.mkdir(parents=True, exist_ok=True)
        running.append(subprocess.Popen([sys.executable, "-c", HOLD, mount.base(NAME), log, str(rounds)]))
    assert [process.wait(100) for process in running] == [0] * len(running)
    assert log.read_text() == "in\nout\n" * rounds * len(running)


def test_flock_1_in_a_view_excludes_flock_1_on_the_store(mount, two_jobs, scratch):
    one, _ = two_jobs
    tool = shutil.which("flock")
    prepare(one)
    argv = [tool, "--nonblock", one.path(NAME), tool, "--nonblock", mount.base(NAME), "true"]
    assert one("subprocess.call", [str(word) for word in argv]) == 1
    wait_until(lambda: flock_raw(mount.base(NAME)), what="the end of the first one's lock")
