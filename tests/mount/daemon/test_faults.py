# SPDX-License-Identifier: Apache-2.0
"""A fault gives the caller a clear error, and the base stays intact."""

import errno
import os
import re

import mounts
import pytest
from jobs import wait_until

KERNEL = {"kernel.cubin": b"c" * 5000, "kernel.json": b"{}"}


def tree_of(directory):
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
            for path in sorted(directory.rglob("*")) if ".cacheshim" not in path.parts}


def test_a_killed_daemon_gives_enotconn_and_loses_nothing(mount, job_of):
    one, user = job_of(mount, "one", 20001), job_of(mount, None, 20002)
    one.put_group("KEY", KERNEL)
    one.put("HALF", "kernel.cubin", b"not yet complete")
    user.put("HALF", "kernel.cubin", b"of a user without a job")
    handle = one("hold", one.path("triton/HALF/kernel.cubin"))
    base = tree_of(mount.store)
    mount.kill_daemon()
    for call in (("os.stat", one.path("triton")), ("os.listdir", one.view("triton")),
                 ("write_file", one.view("triton/new"), b"x"), ("os.fstat", handle)):
        with pytest.raises(OSError) as caught:
            one(*call)
        assert caught.value.errno in (errno.ENOTCONN, errno.ECONNABORTED), call
    one.close()
    assert tree_of(mount.store) == base
    assert mount.unmount().returncode == 0, "a dead mount can be taken away"
    mount.mount()
    assert b"not yet complete" in mount.layer_files("one").values()
    assert user.read("triton/HALF/kernel.cubin") == b"of a user without a job"
    assert job_of(mount, "three", 20003).read("triton/KEY/kernel.cubin") == KERNEL["kernel.cubin"]


def test_mounting_over_a_dead_mount_works_or_says_why(mount):
    mount.kill_daemon()
    result = mount.try_mount()
    if result.returncode != 0:
        assert result.returncode in (1, 69)
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
        mount.detach()
        mount.mount()


def test_unmount_in_use_is_refused_and_loses_nothing(mount, two_jobs):
    one, _ = two_jobs
    one.put("KEY", "kernel.cubin", b"kept")
    handle = one("hold", one.path("triton/KEY/kernel.cubin"))
    refused = mount.unmount()
    assert refused.returncode == 1
    assert len(refused.stderr.strip().splitlines()) == 1, refused.stderr
    assert one("os.pread", handle, 100, 0) == b"kept"
    one.put("KEY", "more", b"still working")
    one("release", handle)
    wait_until(lambda: mount.unmount().returncode == 0, what="unmount after the last close")
    assert not mounts.is_mounted(mount.path)
    assert b"kept" in mount.layer_files("one").values()


def test_the_daemon_ends_with_its_mount(mount):
    pid = mount.daemon_pid()
    assert mount.unmount().returncode == 0
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the daemon's end")


@pytest.fixture
def small_store(scratch):
    """A store on a file system of 24 MiB, with one base entry."""
    store = scratch / "small"
    store.mkdir()
    mounts.run("mount", "-t", "tmpfs", "-o", "size=24m,mode=755", "small", store, check=True)
    (store / "triton/BASE").mkdir(parents=True)
    (store / "triton/BASE/kernel.cubin").write_bytes(b"of the base" * 1000)
    return store


def test_a_full_disk_gives_enospc_to_the_writer_alone(mount_store, small_store, job_of):
    mount = mount_store(small_store)
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    base = tree_of(small_store)
    written, error = one("fill", one.path("triton/big"), 1 << 20, 64 << 20)
    assert error == errno.ENOSPC and written < 24 << 20
    with pytest.raises(OSError) as caught:  # there is no space for a copy-up either
        for number in range(100):
            two.write("triton/BASE/kernel.cubin", b"+" * 9000, flags=os.O_WRONLY | os.O_APPEND)
            two.write(f"triton/more{number}", b"+" * 9000)
    assert caught.value.errno == errno.ENOSPC
    assert tree_of(small_store) == base
    assert one.read("triton/BASE/kernel.cubin") == b"of the base" * 1000
    assert two.listdir("triton/BASE") == ["kernel.cubin"]
    one("os.unlink", one.path("triton/big"))
    # unlink(2) may return before the kernel releases the file and its space.
    wait_until(lambda: os.statvfs(small_store).f_bfree > 1000, what="the free space")
    two.put_group("KEY", KERNEL)
    assert two.read("triton/KEY/kernel.cubin") == KERNEL["kernel.cubin"]
    assert mount.base("triton/KEY/kernel.cubin").read_bytes() == KERNEL["kernel.cubin"]


def test_a_disk_that_fills_while_publishing_leaves_no_part_of_an_entry(mount_store, small_store,
                                                                       job_of):
    mount = mount_store(small_store)
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    for number in range(12):
        try:
            two.put_group(f"KEY{number}", {"kernel.cubin": b"k" * (3 << 20), "kernel.json": b"{}"})
        except OSError as error:
            assert error.errno == errno.ENOSPC
    for entry in (small_store / "triton").iterdir():
        if entry.name != "BASE":
            assert sorted(os.listdir(entry)) == ["__grp__kernel.json", *sorted(KERNEL)]
            assert (entry / "kernel.cubin").stat().st_size == 3 << 20
    assert one.read("triton/BASE/kernel.cubin") == b"of the base" * 1000


def test_staging_is_cleaned_at_the_next_mount_after_a_crash(mount, two_jobs):
    two_jobs[0].put_group("KEY", KERNEL)
    staging = mount.store / ".cacheshim/staging"
    (own,) = os.listdir(staging)
    for job in two_jobs:
        job.close()
    mount.kill_daemon()
    mount.detach()
    half = staging / own / "99/tree"
    half.mkdir(parents=True)
    (half / "kernel.cubin").write_bytes(b"half")
    base = tree_of(mount.store)
    mount.mount()
    wait_until(lambda: not (staging / own).exists(), what="cleaning")
    assert tree_of(mount.store) == base


def test_two_daemons_serve_one_store(mount_store, store, job_of):
    here, there = mount_store(store), mount_store(store)
    one, two = job_of(here, "one", 20001), job_of(there, "two", 20002)
    assert not two.exists("triton/KEY")
    one.put_group("KEY", KERNEL)
    wait_until(lambda: two.exists("triton/KEY/kernel.cubin"), 3, "the other daemon's answer")
    assert two.read("triton/KEY/kernel.cubin") == KERNEL["kernel.cubin"]
    two.put("KEY2", "kernel.cubin", b"of two")
    assert two.read("triton/KEY2/kernel.cubin") == b"of two"
    assert not one.exists("triton/KEY2/kernel.cubin")


def test_one_job_on_two_daemons_has_two_layers(mount_store, store, job_of):
    """Two daemons on one machine stand for two nodes: each daemon has its own layer for the job."""
    here, there = mount_store(store), mount_store(store)
    first, second = job_of(here, "one", 20001), job_of(there, "one", 20001)
    first.put("KEY", "kernel.cubin", b"here")
    second.put("KEY", "kernel.cubin", b"there")
    assert first.read("triton/KEY/kernel.cubin") == b"here"
    assert second.read("triton/KEY/kernel.cubin") == b"there"


def test_a_store_of_a_newer_format_is_refused(mount, mount_store, store):
    assert mount.unmount().returncode == 0
    record = store / ".cacheshim/format"
    text = record.read_text()
    newer = re.sub(r"\d+", lambda found: str(int(found.group()) + 1000), text, count=1)
    assert newer != text
    record.write_text(newer)
    result = mount.try_mount()
    assert result.returncode == 69
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert not mounts.is_mounted(mount.path)
    record.write_text(text)
    mount.mount()


def test_a_store_stays_a_plain_directory(mount, two_jobs):
    one, two = two_jobs
    one.put_group("KEY", KERNEL)
    two("shutil.rmtree", two.path("triton/KEY"))
    two("os.mkdir", two.path("triton/KEY"))
    families = mount.status()["profiles"]  # the mount has created a directory for each family
    for job in two_jobs:
        job.close()
    wait_until(lambda: mount.unmount().returncode == 0, what="unmount")
    for path in mount.store.rglob("*"):
        assert path.is_file() or path.is_dir() or path.is_symlink(), f"{path} is a special file"
        assert not [name for name in os.listxattr(path, follow_symlinks=False)
                    if name.startswith(("user.", "trusted."))], path
        if ".cacheshim" not in path.relative_to(mount.store).parts:
            assert not path.name.startswith(".wh."), path
    assert sorted(os.listdir(mount.store)) == [".cacheshim", *families]


def test_the_contents_of_a_plain_cache_directory_are_served_and_kept(mount_store, store, job_of):
    (store / "triton/OLD/deep/er").mkdir(parents=True)
    (store / "triton/OLD/deep/er/file").write_bytes(b"from before")
    (store / "triton/OLD/link").symlink_to("deep/er/file")
    before = tree_of(store)
    mount = mount_store(store)
    job = job_of(mount, "one", 20001)
    assert job.read("triton/OLD/deep/er/file") == b"from before"
    assert job.read("triton/OLD/link") == b"from before"
    # The mount has created an empty directory for every other family.
    families = {name: None for name in mount.status()["profiles"]}
    assert tree_of(store) == {**families, **before}


def test_a_base_file_put_there_by_hand_is_seen(mount, two_jobs):
    one, _ = two_jobs
    one("os.makedirs", one.path("triton/KEY"), exist_ok=True)
    assert not one.exists("triton/KEY/by-hand")
    mount.base("triton/KEY").mkdir(parents=True)
    mount.base("triton/KEY/by-hand").write_bytes(b"x")
    wait_until(lambda: one.exists("triton/KEY/by-hand"), 2, "a raw creation in the base")
    mount.base("triton/KEY/by-hand").unlink()
    wait_until(lambda: not one.exists("triton/KEY/by-hand"), 2, "a raw removal from the base")
