# SPDX-License-Identifier: Apache-2.0
"""One user takes as many of the daemon's resources as possible; other users and root still get what they need
(common/limits.def)."""

import os
import pathlib
import shutil
import subprocess

import mounts
import pytest
from jobs import wait_until
from mounts import limit_of

HOSTILE, VICTIM = 20001, 20002
FILES = 2000  # the daemon's limit of open files
MANY = 2500


@pytest.fixture(autouse=True)
def limits_agent(scratch):
    module = pathlib.Path(__file__).parent / "agent_limits.py"
    shutil.copyfile(module, scratch / module.name)
    (scratch / module.name).chmod(0o644)


@pytest.fixture
def small(program, store, scratch):
    """A mount whose daemon may open only a few files."""
    (scratch / "small").mkdir()
    one = mounts.Mount(store, scratch / "small")
    result = mounts.run_mounting(["prlimit", f"--nofile={FILES}:{FILES}", "--", program, "mount", "--store", store,
                                  one.path], one.log)
    assert result.returncode == 0, result.stderr
    yield one
    one.close()


def assert_usable(mount, job_of):
    """Another user opens many files, and creates and locks one; root does the same."""
    for uid in (VICTIM, 0):
        job = job_of(mount, f"other{uid}", uid)
        job.write("triton/mine", b"x")
        assert job("agent_limits.open_many", job.path("triton/mine"), 100) == (100, None)
        assert job("agent_limits.lock_ranges", job.path("triton/mine"), 10) == (10, None)
        job("agent_limits.release_all")


@pytest.mark.parametrize("call", ["open", "opendir", "create", "remove", "lock", "control"])
def test_one_user_cannot_take_all_descriptors(small, job_of, call):
    job = job_of(small, "j", HOSTILE)
    job("os.makedirs", job.path("triton/d"))
    job.write("triton/f", b"x")
    taken = {
        "open": lambda: job("agent_limits.open_many", job.path("triton/f"), MANY),
        "opendir": lambda: job("agent_limits.open_many", job.path("triton/d"), MANY),
        "create": lambda: job("agent_limits.create_many", job.path("triton/d"), MANY),
        "remove": lambda: job("agent_limits.remove_in_use", job.path("triton/d"), MANY),
        "lock": lambda: job("agent_limits.ask_for_locks_in_children", job.path("triton/f"), FILES // 4),
        "control": lambda: job("agent_limits.open_many", str(small.path / ".cacheshim/control"), MANY),
    }[call]()
    if call == "lock":
        assert taken > 0  # the number of failed requests
    else:
        assert taken[1] == "EMFILE" and taken[0] > FILES // 4
    open_now = len(os.listdir(f"/proc/{small.daemon_pid()}/fd"))
    assert open_now < 0.7 * FILES
    assert_usable(small, job_of)
    assert limit_of(small, "max_handles")["refused"] > 0
    job("agent_limits.release_all")
    wait_until(lambda: limit_of(small, "max_handles")["highest"] < 40, what="the release of the handles")
    assert job("agent_limits.open_many", job.path("triton/f"), 100) == (100, None)


def test_the_configured_number_of_handles(mount_limiting, job_of):
    mount = mount_limiting("max_handles = 50")
    job = job_of(mount, "uid-20001", HOSTILE)
    job.write("triton/f", b"x")
    assert job("agent_limits.open_many", job.path("triton/f"), 100) == (50, "EMFILE")
    assert job("agent_limits.create_many", job.path("triton"), 1) == (0, "EMFILE")
    assert not job.exists("triton/0")
    other = job_of(mount, "uid-20002", VICTIM)
    other.write("triton/f", b"x")
    assert other("agent_limits.open_many", other.path("triton/f"), 50) == (50, None)
    job("agent_limits.release_all")
    wait_until(lambda: job("agent_limits.open_many", job.path("triton/f"), 40)[1] is None or
               job("agent_limits.release_all"), what="the release of the handles")


def test_record_locks_of_one_user_are_limited(mount, job_of):
    job, other = job_of(mount, "j", HOSTILE), job_of(mount, "k", VICTIM)
    job.write("triton/f", b"x")
    most = limit_of(mount, "max_locks")["most"]
    assert job("agent_limits.lock_ranges", job.path("triton/f"), 20_000) == (most, "ENOLCK")
    other.write("triton/f", b"x")
    assert other("agent_limits.lock_ranges", other.path("triton/f"), 100) == (100, None)
    job("agent_limits.unlock_last")
    job("agent_limits.relock_last")
    assert limit_of(mount, "max_locks")["highest"] == 100


def test_an_unlock_cannot_exceed_the_limit(mount_limiting, job_of):
    mount = mount_limiting("max_locks = 100")
    job = job_of(mount, "j", HOSTILE)
    job.write("triton/f", b"x")
    assert job("agent_limits.split_lock", job.path("triton/f"), 1000) == (99, "ENOLCK")
    job("agent_limits.unlock_last")
    assert limit_of(mount, "max_locks")["used"] == 0


def test_one_user_cannot_take_all_leases(mount, job_of):
    job, other = job_of(mount, "j", HOSTILE), job_of(mount, "k", VICTIM)
    job("os.makedirs", job.path("triton"), exist_ok=True)
    job("agent_limits.begin_entries", job.path("triton"), 20, 60)
    assert limit_of(mount, "max_leases")["highest"] == limit_of(mount, "max_leases")["most"]
    other("os.makedirs", other.path("triton/victim"))
    assert not other.exists("triton/victim/__grp__kernel.json")
    assert "triton/victim/__grp__kernel.json" in (mount.path / ".cacheshim/flights").read_text()
    job("agent_limits.release_all")
    wait_until(lambda: limit_of(mount, "max_leases")["used"] <= 1, what="the end of the leases")


def test_waiting_requests_of_one_user_are_limited(mount_limiting, job_of):
    mount = mount_limiting("max_waiters = 5")
    holder, job = job_of(mount, "j", HOSTILE), job_of(mount, "j", HOSTILE)
    holder.write("triton/f", b"x")
    fd = holder("os.open", holder.path("triton/f"), os.O_RDWR)
    holder("fcntl.flock", fd, 2)
    assert job("agent_limits.wait_for_locks", job.path("triton/f"), 8) == ["ENOLCK"] * 3
    assert limit_of(mount, "max_waiters")["used"] == 5
    job.kill()
    wait_until(lambda: limit_of(mount, "max_waiters")["used"] == 0, what="the end of the waits")


def test_jobs_of_one_user_are_limited(mount_limiting, job_of):
    mount = mount_limiting("max_jobs = 10")
    job = job_of(mount, "uid-20001", HOSTILE)
    assert job("agent_limits.start_jobs", str(mount.path / ".cacheshim/control"), 20) == 10
    refused = job_of(mount, "further", HOSTILE)
    with pytest.raises(OSError, match="quota exceeded"):
        refused.listdir("triton")
    job.write("triton/f", b"x")
    job_of(mount, "k", VICTIM).write("triton/f", b"x")
    job_of(mount, "r", 0).write("triton/f", b"x")
    told = mount.cli("job", "end", "h0", "--failure")
    assert told.returncode == 0
    refused.write("triton/f", b"x")


def test_requests_of_one_user_are_limited(mount_limiting, job_of):
    mount = mount_limiting("max_requests = 20")
    control = str(mount.path / ".cacheshim/control")
    job = job_of(mount, "j", HOSTILE)
    job.write("triton/f", b"x")
    wait = b'{"op":"job-wait","job":"j"}'
    assert job("agent_limits.request_many", control, wait, 30) == (20, "EAGAIN")
    assert job_of(mount, "k", VICTIM)("agent_limits.request_many", control, wait, 20) == (20, None)
    job("agent_limits.release_all")
    wait_until(lambda: limit_of(mount, "max_requests")["highest"] == 20 and
               limit_of(mount, "max_requests")["used"] == 20, what="the end of the requests")
    assert job("agent_limits.request_many", control, wait, 30) == (20, "EAGAIN")


def group_of(job, key):
    return f'{{"child_paths": {{"kernel.cubin": "{job.path("triton", key, "kernel.cubin")}"}}}}'.encode()


@pytest.fixture
def many_names(store):
    (store / "triton").mkdir()
    for number in range(FILES):
        (store / "triton" / str(number)).touch()
    return [f"triton/{number}" for number in range(FILES)]


def test_names_that_a_user_holds_are_limited(mount_limiting, many_names, job_of):
    mount = mount_limiting("max_nodes = 400")
    job, other = job_of(mount, "j", HOSTILE), job_of(mount, "k", VICTIM)
    paths = [job.path(name) for name in many_names]
    taken, error = job("agent_limits.open_each", paths, os.O_PATH)
    assert error == "ENFILE" and 300 <= taken <= 400
    assert other("agent_limits.open_each", [other.path(name) for name in many_names[:200]], os.O_PATH) == (200, None)
    assert limit_of(mount, "max_nodes")["refused"] > 0
    job("agent_limits.release_all")
    wait_until(lambda: job("agent_limits.open_each", paths[1000:1200], os.O_PATH)[1] is None or
               job("agent_limits.release_all"), what="the release of the names")


def test_the_kernel_forgets_names_of_a_user_near_the_limit(mount_limiting, many_names, job_of):
    mount = mount_limiting("max_nodes = 400")
    job = job_of(mount, "j", HOSTILE)
    for first in range(0, FILES, 100):
        job("agent_limits.stat_each", [job.path(name) for name in many_names[first:first + 100]])
    assert limit_of(mount, "max_nodes")["highest"] <= 400


def test_entries_that_wait_for_publishing_are_limited(mount_store, disk, scratch, job_of):
    store, layers, config = disk("store", 64), scratch / "layers", scratch / "limits.toml"
    layers.mkdir()
    config.write_text("flight_timeout = 0\n[limits]\nmax_publishing = 1\n")  # 0: no leases in the frozen store
    mount = mount_store(store, "--config", config, "--layers", layers)
    slow, job = job_of(mount, "j", HOSTILE), job_of(mount, "j", HOSTILE)
    for key in ("SLOW", "FAST"):
        job.put(key, "kernel.cubin", b"x")
        job.write(f"triton/{key}/new", group_of(job, key))
    subprocess.run(["fsfreeze", "--freeze", store], check=True)  # publishing now lasts until the unfreeze
    try:
        slow.start("os.rename", slow.path("triton/SLOW/new"), slow.path("triton/SLOW/__grp__kernel.json"))
        wait_until(lambda: limit_of(mount, "max_publishing")["used"] == 1, what="the publishing of the first entry")
        job("os.rename", job.path("triton/FAST/new"), job.path("triton/FAST/__grp__kernel.json"))
        assert limit_of(mount, "max_publishing")["refused"] == 1
        assert job.exists("triton/FAST/__grp__kernel.json")
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", store], check=True)
    slow.result()
    assert mount.base("triton/SLOW").exists()
    job.write("triton/x", b"x")  # the close of this file makes the daemon try again
    wait_until(lambda: mount.base("triton/FAST").exists(), what="the publishing of the postponed entry")


def test_status_has_a_line_for_each_limit(mount_limiting, job_of):
    mount = mount_limiting("max_locks = 3")
    job = job_of(mount, "j", HOSTILE)
    job.write("triton/f", b"x")
    job("agent_limits.lock_ranges", job.path("triton/f"), 5)
    lines = mount.cli("status").stdout.splitlines()
    [line] = [line for line in lines if line.startswith("max_locks")]
    assert line.split(maxsplit=1)[1] == "3 used, at most 3 by one user, of 3; 1 refused"
    names = [one["limit"] for one in mount.status()["limits"]]
    assert [line.split()[0] for line in lines if line.startswith("max_")] == names
