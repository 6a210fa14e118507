# SPDX-License-Identifier: Apache-2.0
"""job_idle: an unused job ends after this time, unless one of its processes is alive."""

import os
import shutil
import signal
import subprocess
import time

import jobs
import pytest

IDLE_S = 2
USER = 24791  # used only here: the test finds leftover processes by this uid
WRITE = 'mkdir -p "$CACHE/K" && echo x > "$CACHE/K/file"'
# Each script leaves a process that makes no request to the daemon. A last command `:` keeps the shell from replacing
# itself with `sleep` (exec).
SLEEPERS = {
    "by its environment": f"{WRITE} & wait; sleep 300; :",
    "by a child with the environment": f"({WRITE}); sleep 300; :",
    "by its parent": f"({WRITE}); env -i sleep 300; :",
    "after an exec without the environment": f"{WRITE}; exec env -i sleep 300",
    "in the background, its parent gone": f"({WRITE}); setsid sleep 300 & :",
    "in another pid namespace": f"({WRITE}); exec unshare --user --pid --fork sleep 300",
}


@pytest.fixture
def short_mount(mount_store, store, scratch):
    config = scratch / "cacheshim.toml"
    config.write_text(f'job_idle = "{IDLE_S}s"\n')
    return mount_store(store, "--config", config)


@pytest.fixture
def start_job(short_mount, scratch):
    """start_job(job, script) runs a shell script as a job, and returns its process when the job is active. After the
    test, the fixture kills the job's processes."""
    groups = []

    def start(job, script, env=None):
        child = subprocess.Popen(
            ["sh", "-c", script], user=USER, group=USER, extra_groups=[], start_new_session=True,
            stdin=subprocess.DEVNULL, cwd="/",
            env=jobs.environment(job, {"CACHE": str(short_mount.path / "triton"), **(env or {})}))
        groups.append(child)
        jobs.wait_until(lambda: is_active(short_mount, job), what=f"the beginning of job {job}")
        return child

    yield start
    for child in groups:
        end_all(child)


def end_all(child):
    """Kills all processes of the user, including those in other sessions."""
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == USER:
                os.kill(int(entry), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass  # the process has exited
    child.wait(10)


def is_active(mount, job):
    path = mount.path / ".cacheshim/jobs" / job
    return path.exists() and mount.job(job)["state"] == "active"


def wait_for_idle_ends(mount, start_job, name, rounds=2):
    """Returns when `rounds` jobs without a process, started one after the other, have ended because they were idle."""
    for number in range(rounds):
        job = f"{name}-{number}"
        start_job(job, WRITE).wait(20)
        jobs.wait_until(lambda job=job: not is_active(mount, job), seconds=40,
                        what=f"the end of job {job}, which has no process")


@pytest.mark.parametrize("how", SLEEPERS)
def test_a_job_with_a_living_process_is_not_idle(short_mount, start_job, how):
    child = start_job("alive", SLEEPERS[how])
    jobs.wait_until(lambda: "K/file" in " ".join(short_mount.layer_files("alive")), what="the file")
    wait_for_idle_ends(short_mount, start_job, "control")
    assert is_active(short_mount, "alive")
    end_all(child)
    jobs.wait_until(lambda: not is_active(short_mount, "alive"), seconds=40,
                    what="the end of the job after its last process")


def test_a_preloaded_job_that_only_sleeps_is_not_idle(short_mount, start_job, library, scratch):
    home = scratch / "home"
    home.mkdir()
    os.chown(home, USER, USER)
    preload = {"LD_PRELOAD": shutil.copy(library, scratch / "libcacheshim.so"), "HOME": str(home),
               "CACHESHIM_MOUNT": str(short_mount.path), "CACHE": f"{home}/.triton/cache"}
    child = start_job("alive", f"({WRITE}); sleep 300; :", env=preload)
    wait_for_idle_ends(short_mount, start_job, "control")
    assert is_active(short_mount, "alive")
    end_all(child)


def test_another_users_process_does_not_keep_a_job(short_mount, start_job):
    other = subprocess.Popen(["sleep", "300"], user=20002, group=20002, extra_groups=[],
                             env=jobs.environment("kept"))
    try:
        start_job("kept", WRITE).wait(20)
        jobs.wait_until(lambda: not is_active(short_mount, "kept"), seconds=40, what="the job's end")
    finally:
        other.kill()
        other.wait(10)


def test_a_job_of_an_earlier_daemon_with_a_living_process_is_not_idle(short_mount, start_job, scratch):
    start_job("alive", f"({WRITE}); sleep 300; :")
    jobs.wait_until(lambda: short_mount.layer_files("alive"), what="the file")
    short_mount.kill_daemon()
    short_mount.detach()
    short_mount.mount("--config", scratch / "cacheshim.toml")
    began = time.monotonic()
    wait_for_idle_ends(short_mount, start_job, "control")
    assert time.monotonic() - began > IDLE_S
    assert is_active(short_mount, "alive")
