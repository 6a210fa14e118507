# SPDX-License-Identifier: Apache-2.0
"""cacheshim job publish, discard and show, and their plans."""

import json
import os

import jobs
import mounts

KERNEL = {"k.cubin": b"cubin" * 100, "k.json": b"{}"}


def plan(mount, command, job="one"):
    answer = json.loads(mount.cli("job", command, job, "--dry-run", "--json").stdout)
    return answer, {one["entry"]: one for one in answer["plan"]}


def held_back(job):
    """Creates files of each kind that a plan distinguishes. Requires: the job publishes only by a command or at its
    end."""
    job.put_group("DONE", KERNEL)
    job.put("BEGUN", "k.cubin", b"x")
    job("os.makedirs", job.path("triton/BEGUN/tmp.pid_7_x"))
    job.write("triton/BEGUN/tmp.pid_7_x/k.ptx", b"half")
    job("os.makedirs", job.path("numba/src"))
    job.write("numba/src/f.nbi", b"index")
    job("os.makedirs", job.path("mine/cache"))
    job.write("mine/cache/x", b"own")


def test_dry_run_plans_publishing_by_entry(mount, job_of):
    job = job_of(mount, "one", 20001, env={"CACHESHIM_PUBLISH": "end"})
    other = job_of(mount, "two", 20002)
    held_back(job)
    job.put("OTHER", "k.cubin", b"mine")
    other.put_group("OTHER", {"k.cubin": b"theirs"})
    job.put("OTHER", "__grp__k.json", b"{}")
    before = mount.layer_files("one")
    answer, units = plan(mount, "publish")
    done = units["triton/DONE"]
    assert (answer["entries"], answer["files"]) == (1, 3)
    assert (done["publish"], done["files"]) == (True, 3) and done["bytes"] == answer["bytes"] > 500
    assert {entry: one.get("why") for entry, one in units.items() if not one["publish"]} == {
        "triton/BEGUN": "its entry is not complete: it is completed by a file named __grp__*.json"
                        " or *.so or *.json",
        "triton/OTHER": "the base has another version of it: first writer wins",
        "numba/src": "nothing shows when its entry is complete: published if the job succeeds",
        "mine/cache": "it belongs to no entry of a known cache: published if the job succeeds"}
    assert mount.layer_files("one") == before
    assert not mount.base("triton/DONE").exists()
    assert mount.stats()["publish_conflicts"] == 0
    text = mount.cli("job", "publish", "one", "--dry-run").stdout
    assert "triton/DONE" in text and "would publish 3 files" in text
    assert "first writer wins" in text and "stays" in text
    assert "published 1 entry (3 files" in mount.cli("job", "publish", "one").stdout
    assert sorted(path.name for path in mount.base("triton").iterdir()) == ["DONE", "OTHER"]
    assert not mount.base("mine").exists()


def test_a_plan_of_files_that_the_base_already_has(mount, job_of):
    job = job_of(mount, "one", 20001, env={"CACHESHIM_PUBLISH": "end"})
    for name, data in KERNEL.items():
        job.put("KEY", name, data)
    job.put_group("KEY", KERNEL)
    whole = mount.layer_files("one")
    for path, data in whole.items():
        mount.base(path).parent.mkdir(exist_ok=True, parents=True)
        mount.base(path).write_bytes(data)
    answer, units = plan(mount, "publish")
    assert answer["files"] == 0 and units["triton/KEY"]["publish"]
    assert "the base has it already" in mount.cli("job", "publish", "one", "--dry-run").stdout
    mount.cli("job", "publish", "one")
    assert mount.layer_files("one") == {}


def test_a_plan_of_a_job_that_may_not_publish(mount_store, store, scratch, job_of):
    config = scratch / "c.toml"
    config.write_text("[publish]\nallow = {}\n")
    mount = mount_store(store, "--config", config)
    job_of(mount, "one", 20001).put_group("KEY", KERNEL)
    answer, units = plan(mount, "publish")
    assert answer["files"] == 0
    assert "the job may not publish: uid 20001" in units["triton/KEY"]["why"]


def test_dry_run_plans_discarding(mount, job_of, store):
    (store / "triton/BASE").mkdir(parents=True)
    (store / "triton/BASE/k.cubin").write_bytes(b"base")
    job = job_of(mount, "one", 20001, env={"CACHESHIM_PUBLISH": "never"})
    held_back(job)
    job("os.remove", job.path("triton/BASE/k.cubin"))
    held = job("hold", job.path("triton/DONE/k.json"))
    before = mount.layer_names("one")
    answer, units = plan(mount, "discard")
    assert {entry: one["files"] for entry, one in units.items()} == {
        "triton/DONE": 3, "triton/BEGUN": 2, "numba/src": 1, "mine/cache": 1}
    assert answer["files"] == 7 and answer["removed"] == 1 and answer["open_files"] == 1
    assert units["mine/cache"]["bytes"] == 3
    text = mount.cli("job", "discard", "one", "--dry-run").stdout
    assert "would discard 7 files" in text and "would again see 1 name" in text
    assert "has 1 file open" in text
    assert mount.layer_names("one") == before
    shown = json.loads(mount.cli("job", "show", "one", "--json").stdout)
    assert shown["holds"] == {"entries": 4, "files": 7, "bytes": answer["bytes"], "removed": 1}
    assert "4 entries (7 files" in mount.cli("job", "show", "one").stdout
    mount.cli("job", "discard", "one")
    assert mount.layer_names("one") == []
    assert not job.exists("triton/DONE") and job.read("triton/BASE/k.cubin") == b"base"
    assert job("os.pread", held, 10, 0) == b"{}"
    job.write("triton/again", b"x")
    assert mount.layer_names("one") == ["triton/again"]
    shown = json.loads(mount.cli("job", "show", "one", "--json").stdout)
    assert (shown["state"], shown["holds"]["files"]) == ("active", 1)


def test_a_job_without_a_layer(mount, job_of):
    job_of(mount, "one", 20001).listdir("triton")
    assert plan(mount, "publish")[0]["plan"] == plan(mount, "discard")[0]["plan"] == []
    assert "would publish 0 files" in mount.cli("job", "publish", "one", "--dry-run").stdout


def test_only_the_jobs_user_and_root_may_plan(mount, job_of):
    job_of(mount, "one", 20001).write("triton/x", b"x")
    for command in ("publish", "discard"):
        argv = [mounts.PROGRAM, "job", command, "one", "--dry-run", "--mount", mount.path]
        refused = jobs.as_user(20002, argv)
        assert refused.returncode == 1 and "belongs to uid 20001, not to uid 20002" in refused.stderr
        assert jobs.as_user(20001, argv).returncode == 0
    assert os.path.exists(mount.uppers("one")[0] / "triton/x")


def test_json_is_for_plans(mount, job_of):
    job_of(mount, "one", 20001).listdir("triton")
    assert mount.cli("job", "publish", "one", "--json", check=False).returncode == 2
