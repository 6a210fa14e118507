# SPDX-License-Identifier: Apache-2.0
"""A user who begins and ends any number of jobs neither exhausts the daemon's memory nor makes the daemon forget other
users' jobs."""

import os
import pathlib
import shutil

import pytest
from jobs import wait_until
from mounts import limit_of

HOSTILE, VICTIM = 20001, 20002
KEPT = 1024  # JobTable::kMostEnded
MANY = KEPT + 300


@pytest.fixture(autouse=True)
def limits_agent(scratch):
    module = pathlib.Path(__file__).parent / "agent_limits.py"
    shutil.copyfile(module, scratch / module.name)
    (scratch / module.name).chmod(0o644)


@pytest.fixture
def hostile(mount, job_of):
    mount.base("triton/f").write_bytes(b"base")
    return job_of(mount, f"uid-{HOSTILE}", HOSTILE)


def begin_and_end(mount, process, name, count=MANY):
    """Returns the number of jobs that the daemon has begun."""
    process.start("agent_limits.start_and_end_jobs", str(mount.path), name, count)
    return process.result(timeout=120)


def jobs_of(mount, uid):
    return {job["job"] for job in mount.ask(op="job-list")["jobs"] if job["uid"] == uid}


def wait_until_forgotten(mount, *names):
    wait_until(lambda: not jobs_of(mount, HOSTILE) & set(names), seconds=30, what=f"{names} to be forgotten")


def test_the_jobs_that_were_used_last_stay(mount, hostile, job_of):
    victim = job_of(mount, "victim", VICTIM)
    victim.write("triton/mine", b"x")
    victim.close()
    mount.end_job("victim", "failure")
    begin_and_end(mount, hostile, "h")
    wait_until_forgotten(mount, "h0", f"h{MANY - KEPT - 1}")
    assert jobs_of(mount, HOSTILE) == {f"h{number}" for number in range(MANY - KEPT, MANY)}
    assert mount.job("victim")["outcome"] == "failure"
    assert mount.cli("job", "wait", f"h{MANY - 1}").returncode == 0
    waited = mount.cli("job", "wait", "h0", check=False)
    assert waited.returncode == 1 and "no job 'h0'" in waited.stderr
    assert "h0" not in os.listdir(mount.path / ".jobs") and "h0" not in os.listdir(mount.path / ".cacheshim/jobs")


def test_a_forgotten_job_can_begin_again(mount, hostile, job_of):
    first = job_of(mount, "h0", HOSTILE)
    first.write("triton/own", b"first")
    mount.end_job("h0", "failure")
    begin_and_end(mount, hostile, "other")
    wait_until_forgotten(mount, "h0")
    assert first.read("triton/f") == b"base" and not first.exists("triton/own")
    first.write("triton/own", b"second")
    assert first.read("triton/own") == b"second"
    assert mount.job("h0")["state"] == "active"


def test_an_id_that_was_forgotten_is_free_for_all_users(mount, hostile, job_of):
    begin_and_end(mount, hostile, "h")
    wait_until_forgotten(mount, "h0")
    job_of(mount, "h0", VICTIM).write("triton/own", b"x")
    assert mount.job("h0")["uid"] == VICTIM


def test_a_job_whose_view_is_a_working_directory_stays_and_counts(mount, hostile, job_of):
    inside = job_of(mount, "inside", HOSTILE)
    inside.write("triton/own", b"x")
    inside("os.chdir", str(mount.path / ".jobs/inside/triton"))
    mount.end_job("inside", "failure")
    begin_and_end(mount, hostile, "h")
    wait_until_forgotten(mount, "h0")
    wait_until(lambda: limit_of(mount, "max_jobs")["used"] == 1, what="the charge for the job")
    assert "inside" in jobs_of(mount, HOSTILE)
    assert inside("os.listdir", ".") == ["f"] and inside("os.stat", "f").st_size == 4
    inside("os.chdir", "/")
    begin_and_end(mount, hostile, "more")
    wait_until_forgotten(mount, "inside")
    wait_until(lambda: limit_of(mount, "max_jobs")["used"] == 0, what="the end of the charge")


def test_jobs_that_are_held_count_against_the_limit(mount_limiting, job_of):
    mount = mount_limiting("max_jobs = 20")
    mount.base("triton/f").write_bytes(b"base")
    hostile = job_of(mount, f"uid-{HOSTILE}", HOSTILE)
    begin_and_end(mount, hostile, "held", 40)
    views = [str(mount.path / f".jobs/held{number}") for number in range(40)]
    assert hostile("agent_limits.open_each", views, os.O_PATH) == (40, None)
    begin_and_end(mount, hostile, "h", KEPT - 10)
    wait_until(lambda: begin_and_end(mount, hostile, "more", 100) < 100, seconds=30, what="a refusal")
    job_of(mount, "k", VICTIM).write("triton/own", b"x")
    hostile("agent_limits.release_all")
    wait_until(lambda: begin_and_end(mount, hostile, "again", 1) == 1, seconds=30, what="the end of the charges")


def resident_kib(mount):
    status = pathlib.Path(f"/proc/{mount.daemon_pid()}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def test_the_daemon_does_not_grow(mount, hostile):
    """Each job takes 3 KiB of the daemon's memory. The first runs fill the memory that the allocator keeps, so
    the test measures only the growth after them."""
    def run_many(name):
        begin_and_end(mount, hostile, name, 3 * KEPT)
        wait_until_forgotten(mount, f"{name}0", f"{name}{2 * KEPT - 1}")
        return resident_kib(mount)
    before = [run_many(name) for name in ("a", "b")][-1]
    after = [run_many(name) for name in ("c", "d", "e")][-1]
    assert after - before < 9 * KEPT
