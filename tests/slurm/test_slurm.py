# SPDX-License-Identifier: Apache-2.0
"""Tests jobs of a real SLURM: what the prolog and the epilog do, what is published, and which users may use a job."""

import os
import shutil
import signal
import time

import jobs
import pytest
from cluster import USERS, has_cgroups

SLEEP = "echo begun; sleep 300"


@pytest.fixture(scope="session")
def timed_out(site):
    """A job that exceeds its time limit. Every test requests this fixture, so that the job is submitted first: SLURM
    enforces time limits only once a minute."""
    return site.submit("cs-alice", f"write timeout half; {SLEEP}", "--time=1")


def test_the_files_of_a_successful_job_are_published(site, timed_out):
    job = site.submit("cs-alice", "write success whole")
    assert site.wait_for_end(job) == "COMPLETED"
    assert site.published("success") == "whole"
    assert site.layers(job) == {}


def test_a_job_that_exits_with_3_publishes_nothing(site, timed_out):
    job = site.submit("cs-alice", "write failure half; exit 3")
    assert site.wait_for_end(job) == "FAILED"
    assert site.published("failure") is None
    assert site.layers(job) == {"0": ["half"]}


@pytest.mark.parametrize("name, script", [
    ("killed", SLEEP),
    ("polite", f"trap 'exit 0' TERM; {SLEEP} & wait"),
])
def test_a_cancelled_job_publishes_nothing(site, timed_out, name, script):
    job = site.submit("cs-alice", f"write {name} half; {script}")
    site.cluster.wait_for_output(job, "begun")
    site.cluster.run("scancel", "--full" if name == "polite" else "--verbose", job)
    assert site.wait_for_end(job) == "CANCELLED"
    assert site.published(name) is None
    assert site.layers(job) == {"0": ["half"]}


def test_a_requeued_job_begins_anew(site, timed_out):
    job = site.submit(
        "cs-bob", 'if [ -n "$SLURM_RESTART_COUNT" ]; then ls $MOUNT/blobs; write second whole; exit; fi\n'
        f"write first half; {SLEEP}", "--requeue")
    site.cluster.wait_for_output(job, "begun")
    site.cluster.run("scontrol", "requeue", job)
    site.cluster.wait_for_state(job, "PENDING")
    assert not site.is_active(job), "the epilog has returned, so the attempt is over"
    assert site.layers(job) == {"0": ["half"]}
    site.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # otherwise SLURM waits two minutes
    assert site.wait_for_end(job) == "COMPLETED"
    assert "first" not in site.cluster.output_of(job)
    assert (site.published("first"), site.published("second")) == (None, "whole")
    assert site.layers(job) == {"0": ["half"]}


@pytest.mark.skipif(not has_cgroups(), reason="SLURM cannot track jobs by cgroup here")
def test_a_forged_job_id_opens_no_other_job(site, timed_out):
    victim = site.submit("cs-alice", f"write mine secret; {SLEEP}")
    site.cluster.wait_for_output(victim, "begun")
    read = f"cat {site.mount}/blobs/mine/file"
    forged = {"SLURM_JOB_ID": victim}
    outside = site.cluster.try_run("sh", "-c", read, user="cs-bob", env=forged)
    assert outside.returncode != 0 and "No such file" in outside.stdout, "bob has a job of his own of this name"
    inside = site.submit("cs-bob", f"export SLURM_JOB_ID={victim}; write forged x; {read}; echo done")
    site.cluster.wait_for_output(inside, "done")
    assert "secret" not in site.cluster.output_of(inside)
    site.wait_for_end(inside)
    assert site.published("forged") == "x", "its own job's, by the cgroup"
    site.cluster.run("scancel", victim)
    site.wait_for_end(victim)
    assert site.published("mine") is None


def test_the_programs_commands_work_in_a_preloaded_job(site, timed_out):
    job = site.submit("cs-alice", "write own x; timeout 20 $PROGRAM status --mount $MOUNT; echo code $?\n"
                      "timeout 20 $PROGRAM job show $SLURM_JOB_ID --mount $MOUNT; echo code $?")
    site.cluster.wait_for_state(job, "COMPLETED")
    output = site.cluster.output_of(job)
    assert output.count("code 0") == 2, output
    assert str(site.store) in output


@pytest.mark.skipif(not has_cgroups(), reason="SLURM cannot track jobs by cgroup here")
def test_a_job_that_only_sleeps_is_not_idle(site, timed_out):
    mount, _store = site.mount_store("idle-mnt", "idle-store", 'job_idle = "2s"\n')
    # Only the cgroup shows that the sleeping processes belong to the job: they have an empty environment.
    job = site.submit("cs-alice", f"(mkdir -p {mount}/blobs); echo begun\n"
                      "setsid env -i sleep 300 & exec env -i sleep 300")
    gone = site.submit("cs-bob", f"mkdir -p {mount}/blobs")
    site.cluster.wait_for_output(job, "begun")
    site.cluster.wait_for_state(gone, "COMPLETED")
    for number in range(2):
        jobs.wait_until(lambda: pause() or not site.is_active(gone, mount), seconds=40,
                        what="the end of a job without a process")
        gone = f"control{number}"
        site.cluster.run("mkdir", "-p", f"{mount}/more", user="cs-bob", env={"CACHESHIM_JOB": gone})
    assert site.is_active(job, mount)
    site.cluster.run("scancel", job)
    jobs.wait_until(lambda: pause() or not site.is_active(job, mount), seconds=40,
                    what="the job's end after its last process")


def pause():
    time.sleep(0.2)


def test_an_epilog_returns_while_the_daemon_hangs(site, timed_out):
    job = site.submit("cs-alice", f"write stuck x; echo begun; /bin/sleep 3")
    site.cluster.wait_for_output(job, "begun")
    daemon = int(site.cluster.run("pgrep", "-f", f"^{site.program} mount .*{site.mount}$").split()[0])
    site.cluster.run("kill", "-STOP", daemon)
    try:
        assert site.cluster.wait_for_state(job, "COMPLETED", seconds=60)
        assert site.cluster.run("sinfo", "-h", "-o", "%T").strip() in ("idle", "mixed", "completing")
    finally:
        site.cluster.run("kill", "-CONT", daemon)


def test_an_epilog_returns_without_slurm_and_without_a_mount(site, timed_out):
    epilog = site.cluster.top / "epilog.sh"
    lost = site.top / "lost.sh"
    lost.write_text(epilog.read_text().replace("squeue=squeue", "squeue=/nonexistent/squeue")
                    .replace("final_state_wait=300", "final_state_wait=1"))
    lost.chmod(0o755)
    began = time.monotonic()
    unknown = {"SLURM_JOB_ID": "999999", "SLURM_JOB_EXIT_CODE": "0"}
    site.cluster.run(lost, env=unknown)
    env = {"CACHESHIM_JOB": "lost-777", "HOME": "/nonexistent"}
    site.cluster.run("sh", "-c", f"mkdir -p {site.mount}/blobs/lost; echo x > {site.mount}/blobs/lost/file",
                     user="cs-bob", env=env)
    site.cluster.run(lost, env={"SLURM_JOB_ID": "lost-777", "SLURM_JOB_EXIT_CODE": "0"})
    jobs.wait_until(lambda: pause() or not site.is_active("lost-777"), what="the end of the job")
    assert time.monotonic() - began < 30
    assert site.published("lost") is None, "a state that SLURM does not tell is no success"
    assert site.layers("lost-777") == {"0": ["x"]}


def test_the_prolog_starts_the_job_for_its_user(site, timed_out):
    job = site.submit("cs-alice", "echo begun; sleep 300")
    site.cluster.wait_for_output(job, "begun")
    assert site.is_active(job), "the job itself has not used the cache"
    assert f'"uid": {USERS["cs-alice"]},' in site.describe(job)
    site.cluster.run("mkdir", "-p", f"{site.mount}/blobs", user="cs-bob", env={"CACHESHIM_JOB": job})
    assert site.is_active(f"uid-{USERS['cs-bob']}.{job}")
    site.cluster.run("scancel", job)
    site.wait_for_end(job)


def test_the_prolog_fetches_what_the_last_job_of_this_name_used(site, timed_out):
    entry = site.store / "triton/K"
    entry.mkdir(parents=True)
    (entry / "stub.so").write_text("built")
    reader = site.submit("cs-alice", f"cat {site.mount}/triton/K/stub.so", "--job-name=my training")
    assert site.wait_for_end(reader) == "COMPLETED"
    assert "built" in site.cluster.output_of(reader)
    pack = f"{USERS['cs-alice']}/my training\n"
    jobs.wait_until(lambda: pause() or site.packs() == pack, seconds=30, what="the pack")
    shutil.rmtree(entry)
    idle = site.submit("cs-alice", f"ls {site.store}/triton", "--job-name=my training")
    assert site.wait_for_end(idle) == "COMPLETED"
    assert "K" in site.cluster.output_of(idle).split(), "the entry was there before the job began"
    assert (entry / "stub.so").read_text() == "built"


def test_a_job_that_ran_out_of_time_publishes_nothing(site, timed_out):
    assert site.wait_for_end(timed_out, seconds=170) == "TIMEOUT"
    assert site.published("timeout") is None
    assert site.layers(timed_out) == {"0": ["half"]}


# This test must be the last one, because it kills the cluster.
def test_nothing_is_left_of_a_cluster_whose_parent_is_killed(site):
    os.kill(site.cluster.init_pid, signal.SIGKILL)
    top = str(site.top)

    def is_gone():
        pause()
        return not list(processes_below(top))
    jobs.wait_until(is_gone, seconds=20, what="the end of the cluster's processes")
    with open("/proc/self/mountinfo", encoding="utf-8") as table:
        assert top not in table.read()


def processes_below(top):
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.readlink(f"/proc/{entry}/exe").startswith(top):
                yield entry
        except OSError:
            pass  # the process has exited
