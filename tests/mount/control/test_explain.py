# SPDX-License-Identifier: Apache-2.0
"""`cacheshim explain` reports a path's origin and publisher, why the path is not published, and what hides it."""

import json
import os

import jobs
import mounts
import pytest

KERNEL = {"k.cubin": b"cubin" * 100, "k.json": b"{}"}
CUBIN = "triton/KEY/k.cubin"


def explain(mount, path, job=None):
    options = ["--job", job] if job else []
    return json.loads(mount.cli("explain", str(path), "--json", *options).stdout)


def test_an_entry_that_another_job_has_published(mount, job_of):
    one = job_of(mount, "one", 20001, env={"CACHESHIM_CYCLE": "3"})
    two = job_of(mount, "two", 20002)
    one.put_group("KEY", KERNEL)
    assert two.read(CUBIN) == KERNEL["k.cubin"]
    answer = explain(mount, CUBIN, "two")
    published = answer["published"]
    assert answer["from"] == "base" and answer["size"] == 500
    assert (answer["profile"], answer["class"], answer["entry"]) == ("triton", "private", "triton/KEY")
    assert (published["job"], published["cycle"], published["uid"]) == ("one", "3", 20001)
    assert published["xxh3"] == answer["xxh3"]
    assert "not_published" not in answer and "hidden" not in answer
    text = mount.cli("explain", CUBIN, "--job", "two").stdout
    assert "by job one (cycle 3), uid 20001" in text and "(as on record)" in text
    directory = explain(mount, "triton/KEY", "two")
    assert directory["kind"] == "directory" and directory["published"]["job"] == "one"


def test_every_spelling_of_a_path(mount, two_jobs):
    two_jobs[0].put_group("KEY", KERNEL)
    two_jobs[1].exists(CUBIN)
    for path, job in ((mount.path / CUBIN, "uid-0"), (mount.store / CUBIN, "uid-0"),
                      (mount.path / ".jobs/two" / CUBIN, "two"), (CUBIN, "uid-0")):
        answer = explain(mount, path)
        assert answer["path"] == CUBIN and answer["from"] == "base"
        assert answer["job"] in (job, None)
    home = mounts.run(mounts.PROGRAM, "explain", "/home/someone/.triton/cache/KEY/k.cubin",
                      "--mount", mount.path, "--json", env={"HOME": "/home/someone"})
    assert json.loads(home.stdout)["path"] == CUBIN
    outside = mount.cli("explain", "/etc/passwd", check=False)
    assert outside.returncode == 2 and "neither below the mount" in outside.stderr


@pytest.mark.parametrize("path, reason", [
    ("triton/KEY/k.cubin", "not complete: it is completed by a file named __grp__*.json"),
    ("triton/KEY/tmp.pid_1/x", "a temporary name is never published"),
    ("numba/src/f.nbi", "published if the job succeeds"),
    ("cuda-compute-cache/0/a/b", "the profile is a guess"),
    ("mine/x", "no entry of a known cache"),
])
def test_explain_says_why_an_entry_is_not_published(mount, two_jobs, path, reason):
    one, _ = two_jobs
    one("os.makedirs", os.path.dirname(one.path(path)), exist_ok=True)
    one.write(path, b"x")
    answer = explain(mount, path, "one")
    assert answer["from"] == "layer"
    assert reason in answer["not_published"]
    assert "published" not in answer


def test_an_entry_that_is_still_open(mount, two_jobs):
    one, _ = two_jobs
    one.put("KEY", "k.cubin", b"x")
    held = one("hold", one.path(CUBIN), os.O_WRONLY)
    one.put("KEY", "__grp__k.json", b"{}")
    assert "open for writing" in explain(mount, CUBIN, "one")["not_published"]
    one("release", held)
    jobs.wait_until(lambda: explain(mount, CUBIN, "one")["from"] == "base")
    assert "not_published" not in explain(mount, CUBIN, "one")


def test_explain_shows_a_conflict_of_two_jobs(mount, two_jobs):
    one, two = two_jobs
    two.put("KEY", "k.cubin", b"two's")
    one.put_group("KEY", KERNEL)
    two.put("KEY", "__grp__k.json", b"{}")
    answer = explain(mount, CUBIN, "two")
    assert answer["from"] == "layer"
    assert "another version" in answer["not_published"]
    assert "begun 'triton/KEY' itself" in answer["hidden"]
    assert answer["published"]["job"] == "one"
    assert explain(mount, CUBIN, "one")["from"] == "base"


def test_names_that_the_job_has_removed_or_written_itself(mount, two_jobs):
    one, two = two_jobs
    one.put_group("KEY", KERNEL)
    two("os.remove", two.path(CUBIN))
    answer = explain(mount, CUBIN, "two")
    assert answer["from"] == "nowhere"
    assert answer["hidden"] == f"the job has removed '{CUBIN}'"
    two.write("triton/KEY/k.json", b"two's")
    assert "a file of its own" in explain(mount, "triton/KEY/k.json", "two")["hidden"]


def test_a_path_that_does_not_exist(mount, two_jobs):
    two_jobs[0].exists("triton/KEY")
    answer = explain(mount, CUBIN, "one")
    assert answer["from"] == "nowhere" and "published" not in answer and "hidden" not in answer
    assert "nowhere" in mount.cli("explain", CUBIN, "--job", "one").stdout


def test_an_evicted_entry(mount_store, store, scratch, job_of):
    config = scratch / "c.toml"
    config.write_text('[gc]\nmax_size = 0\nmin_age = 0\n')
    mount = mount_store(store, "--config", config)
    job = job_of(mount, "one", 20001)
    job.put_group("KEY", KERNEL)
    mount.cli("gc")
    answer = explain(mount, CUBIN, "one")
    assert answer["from"] == "nowhere"
    assert answer["gone"]["event"] == "evict" and answer["gone"]["reason"] == "max_size"
    assert answer["published"]["job"] == "one"


def test_explain_shows_a_jobs_files_only_to_its_user(mount, two_jobs):
    one, two = two_jobs
    one.write("triton/x", b"x")
    two.exists("triton")
    argv = [mounts.PROGRAM, "explain", "triton/x", "--mount", mount.path, "--job", "one", "--json"]
    refused = jobs.as_user(20002, argv)
    assert refused.returncode == 1 and "belongs to uid 20001, not to uid 20002" in refused.stderr
    own = json.loads(jobs.as_user(20001, argv).stdout)
    assert own["from"] == "layer"


def test_builder_and_waiters_are_shown(mount, job_of):
    leader, other = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    name = "triton/KEY/stub.so"
    assert not leader("create_and_look_up", leader.path("triton/KEY"), "stub.so")
    assert f"by process {leader.pid} of job one; no process waits" in mount.cli("explain", name).stdout
    other.start("create_and_look_up", other.path("triton/KEY"), "stub.so")
    jobs.wait_until(lambda: mount.stats()["flight_waits"] == 1)
    for path in (name, "triton/KEY"):
        assert explain(mount, path)["flights"] == [
            {"path": name, "job": "", "leader": leader.pid, "leader_job": "one", "remote": False,
             "waiting": 1, "waiting_jobs": ["two"]}]
    text = mount.cli("explain", name).stdout
    assert f"by process {leader.pid} of job one; 1 process waits for it, of two" in text
    leader("triton_put", leader.path("triton/KEY"), "stub.so", b"built")
    assert other.result()
    assert "flights" not in explain(mount, name)
    assert "waits that ended because the name had appeared" in mount.cli("stats").stdout
