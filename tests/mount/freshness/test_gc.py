# SPDX-License-Identifier: Apache-2.0
"""Eviction and verification: which entries they remove, and what each view sees."""

import json
import os
import time

import jobs
import mounts
import pytest

DAY = 24 * 3600
FILE_BYTES = 64 * 1024


def used(path, days_ago):
    when = time.time() - days_ago * DAY
    os.utime(path, (when, when))


def await_use(path):
    """Returns once the daemon has set the access time of a file that was opened."""
    jobs.wait_until(lambda: os.stat(path).st_atime > time.time() - DAY, what="the record of the use")


def entry(store, key, days_ago, family="triton"):
    directory = store / family / key
    directory.mkdir(parents=True)
    for name in ("k.cubin", "k.json"):
        (directory / name).write_bytes(key.encode() * (FILE_BYTES // len(key)))
        used(directory / name, days_ago)
    return directory


@pytest.fixture
def mount_with(mount_store, store, scratch):
    """mount_with(lines, before) mounts the store with a configuration: `before`, and `lines` in a table [gc]."""
    def mount(lines, before=""):
        config = scratch / "cacheshim.toml"
        config.write_text(f"{before}\n[gc]\n{lines}\n")
        return mount_store(store, "--config", config)
    return mount


@pytest.mark.parametrize("process_of", ["job_of", "shimmed_job_of"])
@pytest.mark.parametrize("times", ["relatime", "noatime"])
def test_every_open_counts_as_a_use(
        mount_with, store, process_of, times, request):
    mounts.run("mount", "-t", "tmpfs", "-o", f"mode=755,{times}", "small", store, check=True)
    for key in ("USED", "LEFT"):
        entry(store, key, 10)
    mount = mount_with('max_age = "5d"')
    process = request.getfixturevalue(process_of)(mount, "one", 20001)
    process.read("triton/USED/k.json")
    process.read("triton/USED/k.json")  # is answered from the page cache
    for name in ("k.cubin", "k.json"):
        used(store / "triton/USED" / name, 10)
    file = store / "triton/USED/k.json"
    changed = file.stat().st_ctime_ns
    again = request.getfixturevalue(process_of)(mount, "one", 20001)
    for _ in range(50):
        again.exists("triton/USED/k.json")  # after these lookups, the library of a preloaded process answers directly
    again.read("triton/USED/k.json")
    await_use(file)
    if times == "relatime":  # a changed ctime makes git, for example, treat the file as modified
        assert file.stat().st_ctime_ns == changed
    assert evicted(gc(mount)) == ["triton/LEFT"]
    assert keys(mount) == ["USED"]


def gc(mount, *options):
    return json.loads(mount.cli("gc", "--json", *options).stdout)


def keys(mount, family="triton"):
    return sorted(path.name for path in mount.base(family).iterdir())


def evicted(answer):
    return [one["entry"] for one in answer["evicted"]]


def records(mount):
    return [json.loads(line) for log in sorted(mount.base(".cacheshim/audit").glob("*.jsonl"))
            for line in log.read_text().splitlines()]


def log_of(mount):
    return open(os.path.join(mount.status()["run_dir"], "log"), encoding="utf-8").read()


def test_gc_evicts_whole_entries_by_last_use(mount_with, store, job_of):
    for number, key in enumerate(("OLDEST", "OLDER", "NEW")):
        entry(store, key, 30 - 10 * number)
    entry(store, "x", 40, family="unknown")
    mount = mount_with('max_size = "300K"')
    job = job_of(mount, "one", 20001)
    assert job.listdir("triton") == ["NEW", "OLDER", "OLDEST"]
    held = job("hold", job.path("triton/OLDEST/k.cubin"))
    await_use(store / "triton/OLDEST/k.cubin")
    used(store / "triton/OLDEST/k.cubin", 30)  # restores the old time of use, which the open has changed
    planned = gc(mount, "--dry-run")
    assert evicted(planned) == ["unknown/x", "triton/OLDEST"]
    assert planned["dry_run"] and keys(mount) == ["NEW", "OLDER", "OLDEST"]
    shown = mount.cli("gc", "--dry-run").stdout
    assert "triton/OLDEST" in shown and "max_size" in shown and "to be evicted: 2 entries" in shown
    done = gc(mount)
    assert evicted(done) == evicted(planned)
    assert keys(mount) == ["NEW", "OLDER"] and keys(mount, "unknown") == []
    assert job.listdir("triton") == ["NEW", "OLDER"]
    assert not job.exists("triton/OLDEST/k.cubin")
    assert job("os.pread", held, 6, 0) == b"OLDEST"
    assert [record["entry"] for record in records(mount) if record["event"] == "evict"] == \
        evicted(planned)
    assert not list(mount.base(".cacheshim/trash").iterdir())
    assert gc(mount)["evicted"] == []


def test_a_removed_name_is_a_miss_at_the_next_lookup(mount_with, store, job_of):
    entry(store, "OLD", 30)
    mount = mount_with('max_age = "7d"')
    job = job_of(mount, "one", 20001)
    assert job.exists("triton/OLD/k.cubin")
    gc(mount)
    assert not job.exists("triton/OLD/k.cubin")
    assert not job.exists("triton/OLD")
    whole = job.put_group("OLD", {"k.cubin": b"anew"})
    assert job.read("triton/OLD/k.cubin") == b"anew"
    assert sorted(whole) == sorted(path.name for path in mount.base("triton/OLD").iterdir())


@pytest.mark.parametrize("lines, gone", [
    ("max_files = 7", ["triton/A"]),
    ('max_age = "15d"', ["triton/A", "triton/B"]),
    ('max_age = "15d"\nmin_age = "25d"', ["triton/A"]),
    ("max_size = 0", ["triton/A", "triton/B"]),
    ("", []),
])
def test_each_limit(mount_with, store, lines, gone):
    for key, days in (("A", 30), ("B", 20), ("C", 1)):
        entry(store, key, days)
    mount = mount_with(lines)
    assert evicted(gc(mount)) == gone


def test_recently_used_entries_stay_and_are_reported(mount_with, store):
    entry(store, "YOUNG", 1)
    mount = mount_with("max_size = 0")
    answer = gc(mount)
    assert answer["evicted"] == [] and answer["over"]
    assert "used within min_age" in mount.cli("gc").stdout
    assert keys(mount) == ["YOUNG"]


def test_recent_entries_are_evicted_and_logged_when_space_runs_out(mount_with, store):
    entry(store, "YOUNG", 1)
    mount = mount_with('min_free = "100%"')
    assert evicted(gc(mount, "--dry-run")) == ["triton/YOUNG"]
    assert "space is running out" in mount.cli("gc", "--dry-run").stdout
    gc(mount)
    assert keys(mount) == []
    assert "space is running out: evicting 'triton/YOUNG'" in log_of(mount)


def test_the_daemon_evicts_automatically(mount_with, store):
    entry(store, "OLD", 30)
    entry(store, "NEW", 1)
    trash = store / ".cacheshim/trash"
    trash.mkdir(parents=True)
    (trash / "1000000000-node-1-0").mkdir()
    (trash / "1000000000-node-1-0/file").write_bytes(b"left behind")
    mount = mount_with('max_age = "7d"\ninterval = "1s"', before='job_idle = "10s"')
    jobs.wait_until(lambda: keys(mount) == ["NEW"], seconds=30)
    jobs.wait_until(lambda: not list(trash.iterdir()), seconds=30)


def test_only_the_keeper_of_a_store_may_evict(mount_with, store):
    entry(store, "OLD", 30)
    mount = mount_with('max_age = "7d"')
    for command in (["gc"], ["verify", "--repair"]):
        refused = jobs.as_user(20001, [mounts.PROGRAM, *command, "--mount", mount.path])
        assert refused.returncode == 1
        assert "only root" in refused.stderr
    assert keys(mount) == ["OLD"]


def test_bad_limits_are_refused(store, mount_store, scratch):
    config = scratch / "bad.toml"
    for line, reason in (('max_size = "5X"', "gc.max_size: must be a size"),
                         ('min_free = "101%"', "gc.min_free: must be a size, or a percentage"),
                         ("max_files = -1", "gc.max_files: must not be negative"),
                         ("least = 1", "unknown key 'gc.least'")):
        config.write_text(f"[gc]\n{line}\n")
        point = scratch / "bad"
        point.mkdir(exist_ok=True)
        result = mounts.Mount(store, point).try_mount("--config", config)
        assert result.returncode == 2
        assert f"{config}:2: " in result.stderr and reason in result.stderr


def test_a_wipe_in_one_jobs_view_affects_no_other_view(mount_with, store, job_of):
    entry(store, "KEY", 1)
    mount = mount_with("")
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    held = two("hold", two.path("triton/KEY/k.cubin"))
    two.write("triton/own", b"two's")
    one("shutil.rmtree", one.path("triton/KEY"))
    assert not one.exists("triton/KEY")
    assert two.listdir("triton/KEY") == ["k.cubin", "k.json"]
    assert two("os.pread", held, 3, 0) == b"KEY"
    assert two.read("triton/own") == b"two's"
    mount.end_job("one")
    assert keys(mount) == ["KEY"]


KERNEL = {"k.cubin": b"cubin" * 100, "k.json": b"{}"}


def test_a_publish_is_recorded_with_its_user_and_files(mount, job_of):
    job = job_of(mount, "one", 20001, env={"CACHESHIM_CYCLE": "3"})
    whole = job.put_group("KEY", KERNEL)
    (record,) = records(mount)
    assert {name: record[name] for name in ("event", "job", "cycle", "uid", "entry")} == {
        "event": "publish", "job": "one", "cycle": "3", "uid": 20001, "entry": "triton/KEY"}
    assert {file["path"]: file["size"] for file in record["files"]} == {
        f"triton/KEY/{name}": len(data) for name, data in whole.items()}
    assert all(len(file["xxh3"]) == 32 for file in record["files"])
    assert len({file["xxh3"] for file in record["files"]}) == len(whole)


def test_verify_finds_damage_and_repairs_it(mount, two_jobs):
    one, two = two_jobs
    one.put_group("GOOD", KERNEL)
    one.put_group("BAD", KERNEL)
    clean = mount.cli("verify")
    assert "6 files" in clean.stdout and "0 damaged" in clean.stdout
    victim = mount.base("triton/BAD/k.cubin")
    victim.write_bytes(b"CUBIN" * 100)
    found = mount.cli("verify", check=False)
    assert found.returncode == 1
    assert "damaged: triton/BAD/k.cubin: its content differs from the record" in found.stdout
    assert victim.exists()
    assert two.exists("triton/BAD/k.json")
    repaired = json.loads(mount.cli("verify", "--repair", "--json").stdout)
    assert repaired["repaired"] == ["triton/BAD"]
    assert not mount.base("triton/BAD").exists()
    assert not two.exists("triton/BAD/k.json")
    assert mount.base("triton/GOOD").exists()
    assert mount.cli("verify").returncode == 0
    two.put_group("BAD", KERNEL)
    assert "6 files" in mount.cli("verify").stdout


def test_verify_counts_unrecorded_entries(mount_with, store):
    entry(store, "BEFORE", 1)
    mount = mount_with("")
    assert "1 entry not on record" in mount.cli("verify").stdout
