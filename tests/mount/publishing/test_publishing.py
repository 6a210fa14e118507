# SPDX-License-Identifier: Apache-2.0
"""Entries are published as a whole as soon as they are complete, and the first writer wins."""

import os
import stat
import subprocess
import threading

import pytest

KERNEL = {"kernel.ttir": b"ttir", "kernel.cubin": bytes(range(256)) * 200, "kernel.json": b"{}"}


def files_of(directory):
    """Returns every file below a directory of the base, by relative path."""
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in directory.rglob("*") if path.is_file()}


def test_a_complete_entry_is_in_the_base_when_the_call_returns(mount, two_jobs):
    one, _ = two_jobs
    for name, data in KERNEL.items():
        one.put("KEY", name, data)
        if name != "kernel.json":
            assert not mount.base("triton/KEY").exists(), "published before it was complete"
    whole = one.put_group("KEY", KERNEL)
    assert files_of(mount.base("triton/KEY")) == whole
    for directory, directories, files in os.walk(mount.base("triton")):
        for name in directories:
            assert stat.S_IMODE(os.lstat(os.path.join(directory, name)).st_mode) == 0o755, name
        for name in files:
            found = os.lstat(os.path.join(directory, name))
            assert stat.S_ISREG(found.st_mode), name
            assert stat.S_IMODE(found.st_mode) == 0o644, name
            assert found.st_uid == 0, name
        assert not [name for name in directories + files if "tmp.pid_" in name]


def test_the_layer_drops_published_files(mount, two_jobs):
    one, _ = two_jobs
    whole = one.put_group("KEY", KERNEL)
    assert mount.layer_names("one") == []
    assert {name: one.read(f"triton/KEY/{name}") for name in whole} == whole


def test_another_job_sees_an_entry_at_the_next_call(two_jobs):
    one, two = two_jobs
    assert not two.exists("triton/KEY")
    assert not two.exists("triton/KEY/kernel.cubin")
    assert two.listdir("triton") == []
    whole = one.put_group("KEY", KERNEL)
    assert two.exists("triton/KEY/kernel.cubin")
    assert two.read("triton/KEY/kernel.cubin") == KERNEL["kernel.cubin"]
    assert two.listdir("triton") == ["KEY"]
    assert two.listdir("triton/KEY") == sorted(whole)


def test_a_job_that_made_the_directory_and_missed_in_it_sees_the_entry_next(two_jobs):
    """Triton creates the key's directory before it looks up the entry's files."""
    one, two = two_jobs
    two("os.makedirs", two.path("triton/KEY"))
    for name in KERNEL:
        assert not two.exists(f"triton/KEY/{name}")
    assert two.listdir("triton/KEY") == []
    whole = one.put_group("KEY", KERNEL)
    assert two.read("triton/KEY/kernel.cubin") == KERNEL["kernel.cubin"]
    assert two.listdir("triton/KEY") == sorted(whole)


@pytest.mark.parametrize("times", [30])
def test_published_entries_are_visible_at_once(two_jobs, times):
    one, two = two_jobs
    for number in range(times):
        key = f"KEY{number}"
        assert not two.exists(f"triton/{key}/launcher.so")
        one.put(key, "launcher.so", b"x" * number)
        assert two.read(f"triton/{key}/launcher.so") == b"x" * number


@pytest.mark.parametrize("name", ["launcher.so", "autotune.json"])
def test_a_single_file_entry_is_published_at_its_put(mount, two_jobs, name):
    two_jobs[0].put("KEY", name, b"alone")
    assert files_of(mount.base("triton/KEY")) == {name: b"alone"}


@pytest.mark.parametrize("name", ["kernel.cubin", "kernel.ttir", "kernel.txt"])
def test_an_incomplete_entry_stays_in_its_layer(mount, two_jobs, name):
    one, two = two_jobs
    one.put("KEY", name, b"part")
    assert not mount.base("triton/KEY").exists()
    assert not two.exists(f"triton/KEY/{name}")
    assert one.read(f"triton/KEY/{name}") == b"part"


def test_readers_of_the_base_see_an_entry_whole_or_not_at_all(mount, two_jobs):
    one, _ = two_jobs
    seen, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            try:
                keys = os.listdir(mount.base("triton"))
            except FileNotFoundError:
                continue
            seen.extend((key, len(os.listdir(mount.base("triton", key)))) for key in keys)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(20):
            one.put_group(f"KEY{number}", {f"kernel.{i}": b"x" * 5000 for i in range(12)})
    finally:
        stop.set()
        watcher.join()
    assert seen, "nothing was seen"
    assert {count for _key, count in seen} == {13}


def test_the_first_writer_wins_and_the_loser_keeps_its_own(mount, two_jobs):
    one, two = two_jobs
    first = {"kernel.cubin": b"of one", "kernel.ttir": b"t1"}
    second = {"kernel.cubin": b"of two", "kernel.ttir": b"t2"}
    for name in first:
        one.put("KEY", name, first[name])
        two.put("KEY", name, second[name])
    before = mount.stats()["publish_conflicts"]
    whole = one.put_group("KEY", first)
    two.put_group("KEY", second)
    assert files_of(mount.base("triton/KEY")) == whole
    assert mount.stats()["publish_conflicts"] == before + 1
    assert two.read("triton/KEY/kernel.cubin") == b"of two"
    assert two.read("triton/KEY/kernel.ttir") == b"t2"
    assert one.read("triton/KEY/kernel.cubin") == b"of one"


def test_equal_contents_are_no_conflict(mount, two_jobs):
    one, two = two_jobs
    for job in two_jobs:
        job.put("KEY", "kernel.cubin", KERNEL["kernel.cubin"])
    one.put_group("KEY", KERNEL)
    two.put_group("KEY", KERNEL)
    stats = mount.stats()
    assert (stats["publish_conflicts"], stats["entries_published"]) == (0, 1)
    assert mount.layer_names("two") == []


def test_a_further_kernel_is_added_to_an_entry(mount, two_jobs):
    one, two = two_jobs
    whole = one.put_group("KEY", {"a.cubin": b"a"}, kernel="a")
    whole |= two.put_group("KEY", {"b.cubin": b"b"}, kernel="b")
    assert files_of(mount.base("triton/KEY")) == whole
    assert one.listdir("triton/KEY") == sorted(whole)
    assert mount.stats()["publish_conflicts"] == 0


def test_a_job_that_began_an_entry_never_sees_two_builders_files_mixed(two_jobs):
    one, two = two_jobs
    two.put("KEY", "kernel.ttir", b"of two")
    one.put_group("KEY", {"kernel.ttir": b"of one", "kernel.cubin": b"of one"})
    assert two.listdir("triton/KEY") == ["kernel.ttir"]
    assert two.read("triton/KEY/kernel.ttir") == b"of two"
    assert not two.exists("triton/KEY/kernel.cubin")


def test_scratch_names_do_not_begin_an_entry(two_jobs):
    one, two = two_jobs
    two("os.makedirs", two.path("triton/KEY/tmp.pid_1_a"))
    two.write("triton/KEY/tmp.pid_1_a/kernel.cubin", b"half")
    two.write("triton/KEY/kernel.json.tmp.pid_1_0", b"half")
    whole = one.put_group("KEY", KERNEL)
    assert set(whole) <= set(two.listdir("triton/KEY"))
    assert two.read("triton/KEY/kernel.cubin") == KERNEL["kernel.cubin"]


def test_scratch_names_never_reach_the_base(mount, two_jobs):
    one, _ = two_jobs
    one("os.makedirs", one.path("triton/KEY/tmp.pid_7_dead"))
    one.write("triton/KEY/tmp.pid_7_dead/kernel.cubin", b"half")
    one.write("triton/KEY/kernel.ptx.tmp.pid_7_1", b"half")
    whole = one.put_group("KEY", KERNEL)
    mount.end_job("one")
    assert files_of(mount.base("triton/KEY")) == whole
    assert not list(mount.store.glob("triton/**/*tmp.pid_*"))


def test_triton_2_1_names_are_published(mount, two_jobs):
    one, _ = two_jobs
    for name in (*KERNEL, "__grp__kernel.json"):
        one("triton_put_2_1", one.path("triton/OLD"), name, b"2.1 " + name.encode())
    assert set(files_of(mount.base("triton/OLD"))) == {*KERNEL, "__grp__kernel.json"}


def test_a_file_that_is_open_for_writing_is_not_published(mount, two_jobs):
    one, two = two_jobs
    one("os.makedirs", one.path("triton/KEY"))
    handle = one("hold", one.path("triton/KEY/kernel.cubin"), os.O_WRONLY | os.O_CREAT)
    one("os.write", handle, b"first half, ")
    one.put_group("KEY", {"kernel.json": b"{}"})
    one("os.write", handle, b"second half")
    one("release", handle)
    mount.end_job("one")
    assert mount.base("triton/KEY/kernel.cubin").read_bytes() == b"first half, second half"
    assert two.read("triton/KEY/kernel.cubin") == b"first half, second half"


def test_success_publishes_what_is_left_and_failure_does_not(mount, job_of):
    for outcome, uid in (("success", 20001), ("failure", 20002)):
        job = job_of(mount, outcome, uid)
        with pytest.raises(FileExistsError):
            job("os.mkdir", job.path(f"cache-{outcome}"))
        job("os.makedirs", job.path(f"cache-{outcome}/directory"))
        job.write(f"cache-{outcome}/directory/file", b"result")
        assert not mount.base(f"cache-{outcome}/directory/file").exists(), "published before the end"
        job.close()
        mount.end_job(outcome, outcome)
    assert mount.base("cache-success/directory/file").read_bytes() == b"result"
    assert not mount.base("cache-failure").exists()


def test_success_does_not_publish_an_incomplete_entry_of_a_known_cache(mount, two_jobs):
    one, _ = two_jobs
    one.put("KEY", "kernel.cubin", b"without its group")
    one.close()
    mount.end_job("one")
    assert not mount.base("triton/KEY").exists()


@pytest.mark.parametrize(("policy", "at_once", "at_end"), [
    ("never", False, False), ("end", False, True), ("complete", True, True)])
def test_a_job_may_lower_the_policy(mount, job_of, policy, at_once, at_end):
    job = job_of(mount, "one", 20001, env={"CACHESHIM_PUBLISH": policy})
    whole = job.put_group("KEY", KERNEL)
    assert mount.base("triton/KEY").exists() == at_once
    assert {name: job.read(f"triton/KEY/{name}") for name in whole} == whole
    job.close()
    mount.end_job("one")
    assert mount.base("triton/KEY").exists() == at_end


@pytest.mark.parametrize("policy", ["never", "end"])
def test_the_next_daemon_keeps_to_the_lowered_policy(mount, job_of, policy):
    job_of(mount, "one", 20001, env={"CACHESHIM_PUBLISH": policy}).put_group("KEY", KERNEL)
    mount.kill_daemon()
    mount.detach()
    mount.mount()
    mount.end_job("one")
    assert mount.base("triton/KEY").exists() == (policy == "end")


def test_stats_count_what_jobs_do(mount, two_jobs):
    one, two = two_jobs
    whole = one.put_group("KEY", KERNEL)
    two.read("triton/KEY/kernel.cubin")
    two.exists("triton/absent")
    two.write("triton/KEY/kernel.cubin", b"+", flags=os.O_WRONLY | os.O_APPEND)
    stats = mount.stats()
    assert stats["entries_published"] == 1
    assert stats["files_published"] == len(whole)
    assert stats["bytes_published"] == sum(len(data) for data in whole.values())
    assert stats["jobs_active"] == 2
    assert stats["copy_ups"] == 1
    for name in ("lookups", "opens_base", "opens_layer", "misses"):
        assert stats[name] > 0, name
    assert stats["worker_restarts"] == 0


def test_a_published_entry_can_be_removed_and_rebuilt_in_ones_own_view(mount, two_jobs):
    one, two = two_jobs
    whole = one.put_group("KEY", KERNEL)
    one("shutil.rmtree", one.path("triton/KEY"))
    assert not one.exists("triton/KEY")
    assert two.listdir("triton/KEY") == sorted(whole)
    one.put("KEY", "kernel.cubin", b"rebuilt")
    assert one.listdir("triton/KEY") == ["kernel.cubin"]
    assert files_of(mount.base("triton/KEY")) == whole


def test_the_publisher_can_keep_reading_what_it_has_open(two_jobs):
    one, _ = two_jobs
    one.put("KEY", "kernel.cubin", KERNEL["kernel.cubin"])
    handle = one("hold", one.path("triton/KEY/kernel.cubin"))
    before = one("os.fstat", handle)
    one.put_group("KEY", {"kernel.json": b"{}"})
    assert one("os.pread", handle, 1 << 20, 0) == KERNEL["kernel.cubin"]
    after = one("os.stat", one.path("triton/KEY/kernel.cubin"))
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
    assert one("map_and_read", one.path("triton/KEY/kernel.cubin")) == KERNEL["kernel.cubin"]


def test_a_second_link_of_a_published_file_does_not_lead_into_the_base(mount, two_jobs):
    one, two = two_jobs
    one.put("KEY", "kernel.cubin", b"as published")
    one("os.makedirs", one.path("triton/OTHER"))
    one("os.link", one.path("triton/KEY/kernel.cubin"), one.path("triton/OTHER/twin"))
    one.put_group("KEY", {"kernel.json": b"{}"})
    one.write("triton/OTHER/twin", b"overwritten!", flags=os.O_WRONLY)
    assert two.read("triton/KEY/kernel.cubin") == b"as published"
    assert mount.base("triton/KEY/kernel.cubin").read_bytes() == b"as published"


def test_a_published_file_is_changed_in_its_makers_view_only(mount, two_jobs):
    """The job that has created the file gets a private copy, for open descriptors and for later changes."""
    one, two = two_jobs
    whole = one.put_group("KEY", KERNEL)
    handle = one("hold", one.path("triton/KEY/kernel.ttir"))
    one.write("triton/KEY/kernel.ttir", b"changed", flags=os.O_WRONLY | os.O_TRUNC)
    one("os.chmod", one.path("triton/KEY/kernel.json"), 0o600)
    one("os.truncate", one.path("triton/KEY/kernel.cubin"), 3)
    assert one("os.pread", handle, 100, 0) == b"changed"
    assert files_of(mount.base("triton/KEY")) == whole
    assert {name: two.read(f"triton/KEY/{name}") for name in whole} == whole
    assert stat.S_IMODE(mount.base("triton/KEY/kernel.json").stat().st_mode) == 0o644


def test_a_refused_entry_keeps_its_modes_and_times(mount, two_jobs):
    one, two = two_jobs
    two.put("KEY", "kernel.cubin", b"of two")
    path = two.path("triton/KEY/kernel.cubin")
    two("os.chmod", path, 0o640)
    two("os.utime", path, (1_000_000_000, 1_000_000_000))
    one.put_group("KEY", {"kernel.cubin": b"of one"})
    two.put_group("KEY", {"kernel.json": b"{}"})
    found = two("os.stat", path)
    assert (stat.S_IMODE(found.st_mode), found.st_mtime) == (0o640, 1_000_000_000)


def test_eight_writers_at_once_leave_one_builders_entry(mount, job_of):
    """Eight jobs write the same keys with different contents. At any time, every entry has the files of one job."""
    jobs = [job_of(mount, f"job{uid}", uid) for uid in range(20001, 20009)]
    keys = [f"KEY{number}" for number in range(20)]
    ninth = job_of(mount, "ninth", 20009)
    raw = job_of(mount, "raw", 20010)
    ninth.start("watch_entries", str(ninth.mount / "triton"), keys, 60)
    raw.start("watch_entries", str(mount.base("triton")), keys, 60)
    for job in jobs:
        job.start("triton_put_groups", str(job.mount / "triton"), keys, job.job.encode())
    for job in (*jobs, ninth, raw):
        assert job.result() == []
    for key in keys:
        found = files_of(mount.base("triton", key))
        builders = {data.split(b" ")[0] for name, data in found.items() if "__grp__" not in name}
        assert len(found) == 6 and len(builders) == 1, (key, found)


# With TRITON_CACHE_DIR=cache, the group file names the entry's files by paths that depend on the working directory.
def test_a_group_with_relative_paths_is_not_published_and_makes_room(mount, two_jobs):
    one, two = two_jobs
    relative = b'{"child_paths": {"k.cubin": "cache/KEY/k.cubin"}}'
    one.put("KEY", "k.cubin", b"cubin")
    one.put("KEY", "__grp__k.json", relative)
    assert not mount.base("triton/KEY/k.cubin").exists() and one.read("triton/KEY/__grp__k.json") == relative
    poisoned = mount.base("triton/OLD")
    poisoned.mkdir(parents=True)
    (poisoned / "k.cubin").write_bytes(b"old")
    (poisoned / "__grp__k.json").write_bytes(relative)
    found = mount.cli("verify", check=False)
    assert found.returncode != 0 and "triton/OLD/__grp__k.json" in found.stdout + found.stderr
    files = two.put_group("OLD", {"k.cubin": b"new"}, kernel="k")
    assert (poisoned / "k.cubin").read_bytes() == b"new"
    assert (poisoned / "__grp__k.json").read_bytes() == files["__grp__k.json"]
    assert mount.cli("verify").returncode == 0


def test_a_repair_that_fails_is_a_failure(mount, two_jobs):
    one, _ = two_jobs
    for key in ("HELD", "FREE"):
        one.put_group(key, {"k.cubin": b"good"})
        mount.base(f"triton/{key}/k.cubin").write_bytes(b"evil")
    held = mount.base("triton/HELD")
    subprocess.run(["mount", "--bind", held, held], check=True)  # a mount point cannot be moved
    tried = mount.cli("verify", "--repair", check=False)
    assert tried.returncode == 1
    assert "triton/HELD/k.cubin: its content differs from the record; it stays: see the daemon's log" in tried.stdout
    assert "triton/FREE/k.cubin: its content differs from the record\n" in tried.stdout
    assert "moved to trash: triton/FREE" in tried.stdout and "moved to trash: triton/HELD" not in tried.stdout
    subprocess.run(["umount", held], check=True)
    assert mount.cli("verify", "--repair").returncode == 0
    assert not held.exists()
