# SPDX-License-Identifier: Apache-2.0
"""`job end --cycle N`: a late request to end one attempt does not end the next attempt."""


def test_only_the_named_attempt_ends(mount, job_of):
    process = job_of(mount, "again", 20001, env={"CACHESHIM_CYCLE": "1"})
    process.write("triton/file", b"x")
    late = mount.cli("job", "end", "again", "--failure", "--cycle", "0", check=False)
    assert late.returncode == 1
    assert "attempt 1" in late.stderr and "goes on" in late.stderr
    assert mount.job("again")["state"] == "active"
    assert process.read("triton/file") == b"x"
    mount.cli("job", "end", "again", "--failure", "--cycle", "1")
    assert mount.job("again")["state"] == "ended"


def test_without_a_cycle_any_attempt_ends(mount, job_of):
    job_of(mount, "again", 20001, env={"CACHESHIM_CYCLE": "7"}).write("triton/file", b"x")
    mount.end_job("again", "failure")
    assert mount.job("again")["state"] == "ended"
