# SPDX-License-Identifier: Apache-2.0
"""Messages to users about their own jobs, and about other users' jobs."""

import shutil

import mounts
import pytest
from jobs import as_user, wait_until

OTHERS = "job 'one' belongs to uid 20001, not to uid 20002: only its own user and root may use or change it"
OTHERS_ID = "job 'one' belongs to uid 20001"


def triton_entry(job, key):
    job("triton_put", job.path(f"triton/{key}"), "stub.so", b"x")


def end_line(mount, job):
    return wait_until(lambda: next((line for line in (mount.run_directory() / "log").read_text().splitlines()
                                    if f"job '{job}' ended" in line), None), what="the end in the log")


def test_the_end_of_a_job_counts_all_that_it_published(mount, job_of):
    one = job_of(mount, "one", 20001)
    for key in ("A", "B"):
        triton_entry(one, key)
    wait_until(lambda: mount.stats()["entries_published"] == 2)
    one.write("triton/mine", b"x")
    ended = mount.end_job("one").stdout
    assert ended == ("job one ended with success: published 1 entry (1 file, 1 B) at its end, 3 entries "
                     "(3 files, 3 B) in all\n")
    assert ("3 entries with 3 files published, 1 of these entries at its end; not published at its end: "
            "0 conflicts, 0 incomplete, 0 refused") in end_line(mount, "one")


def test_a_job_that_begins_again_counts_anew(mount, job_of):
    one = job_of(mount, "one", 20001)
    triton_entry(one, "A")
    assert "3 B" not in mount.end_job("one").stdout
    triton_entry(one, "B")
    assert mount.end_job("one").stdout == (
        "job one ended with success: published 0 entries (0 files, 0 B) at its end, 1 entry (1 file, 1 B) "
        "in all\n")


def test_an_end_with_success_names_the_run_that_failed(mount):
    for _ in range(2):
        mount.ask(op="job-start", job="one", run=True)
    assert not mount.ask(op="job-end", job="one", outcome="failure", run=True)["ended"]
    assert mount.end_job("one").stdout.startswith(
        "job one ended with failure, because a 'cacheshim run' of it failed: published 0 entries")
    assert mount.job("one")["outcome"] == "failure"


def test_stats_name_leases_and_waits_for_what_they_are(mount):
    rows = {line.split()[0]: line.split(None, 2)[2] for line in mount.cli("stats").stdout.splitlines()}
    assert rows["flight_leases"].startswith("leases given")
    assert rows["flight_waits"] == "waits for another process's build"
    assert len(set(rows.values())) == len(rows)


@pytest.mark.parametrize("action", [("end", "--success"), ("end", "--failure"), ("publish",),
                                    ("publish", "--dry-run"), ("discard",), ("discard", "--dry-run")])
def test_a_job_of_another_user_is_refused_in_one_line(mount, job_of, anybodys_program, action):
    job_of(mount, "one", 20001).write("triton/mine", b"x")
    verb, *options = action
    refused = as_user(20002, [anybodys_program, "job", verb, "one", *options, "--mount", mount.path])
    assert (refused.returncode, refused.stderr) == (1, f"cacheshim: {OTHERS}; nothing was done\n")
    assert mount.job("one")["state"] == "active"


def test_a_job_of_another_user_is_only_listed(mount, job_of, anybodys_program):
    job_of(mount, "one", 20001).write("triton/mine", b"x")
    shown = as_user(20002, [anybodys_program, "job", "show", "one", "--mount", mount.path])
    assert (shown.returncode, shown.stderr) == (
        1, f"cacheshim: {OTHERS.replace('use or change', 'see')}\n")
    listed = as_user(20002, [anybodys_program, "job", "list", "--mount", mount.path])
    assert listed.returncode == 0 and "20001" in listed.stdout


def test_a_command_under_another_users_job_runs_in_a_job_of_its_own(mount, job_of, anybodys_program):
    job_of(mount, "one", 20001).write("triton/mine", b"x")
    run = as_user(20002, [anybodys_program, "run", "--job", "one", "--mount", mount.path, "--", "echo", "ran"])
    assert (run.returncode, run.stdout) == (0, "ran\n")
    assert run.stderr == f"cacheshim: {OTHERS_ID}; using job 'uid-20002.one' instead\n"


def test_a_preloaded_process_under_another_users_job_is_told_once(mount, job_of, library, scratch):
    job_of(mount, "one", 20001).write("triton/mine", b"x")
    copy = shutil.copy(library, scratch / "lib.so")
    env = {"LD_PRELOAD": str(copy), "CACHESHIM_MOUNT": str(mount.path)}
    paths = [mount.path / "triton" / name for name in "xyz"]
    told = as_user(20002, ["/bin/sh", "-c", 'cat "$@"; cat "$@"', "sh", *paths], job="one", env=env)
    assert told.stderr.count("No such file or directory\n") == 6
    lines = [line for line in told.stderr.splitlines() if line.startswith("cacheshim: ")]
    assert lines == [f"cacheshim: {OTHERS_ID}; using job 'uid-20002.one' instead"]


@pytest.mark.parametrize("timeout", ["0.1", "100ms", "0s"])
def test_lock_takes_a_timeout_with_a_unit(program, scratch, timeout):
    lock = scratch / "lock"
    held = mounts.run(program, "lock", lock, "--", program, "lock", "--timeout", timeout, lock, "--", "true")
    assert held.returncode == 75


def test_lock_says_in_one_line_what_a_timeout_is(program, scratch):
    refused = mounts.run(program, "lock", "--timeout", "1sec", scratch / "lock", "--", "true")
    assert refused.returncode == 2
    line, = (line for line in refused.stderr.splitlines() if "1sec" in line)
    assert line.startswith("cacheshim: --timeout: '1sec' is no duration; give seconds, or a number with a unit: 500ms, 1.5s, 10m, 2h")
    assert len(line) < 150


def test_a_wait_for_a_job_takes_a_timeout_with_a_unit(mount, job_of):
    job_of(mount, "one", 20001).listdir("triton")
    late = mount.cli("job", "wait", "one", "--timeout", "100ms", check=False)
    assert late.returncode == 75 and "has not ended within 0.1 s" in late.stderr
