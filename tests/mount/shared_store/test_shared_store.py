# SPDX-License-Identifier: Apache-2.0
"""A store on a file system that several machines may share."""

import signal
import subprocess
import sys
import time

import mounts
import pytest
from jobs import wait_until

KERNEL = {"kernel.cubin": b"binary", "kernel.json": b"{}"}
WITHOUT_FLAGS = mounts.REPOSITORY / "tests/lib/without_rename_flags.py"


def entries_in(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.glob("triton/*/*"))


def test_layers_are_on_this_machine_by_default(shared, mount_store, job_of):
    mount = mount_store(shared)
    job_of(mount, "one", 20001).put("KEY", "private", b"not published")
    status = mount.status()
    assert status["layers"].startswith("/var/lib/cacheshim/layers/")
    assert not status["base_is_local"]
    assert not (shared / ".cacheshim/layers").exists()
    assert mount.layer_files("one") == {}


def test_a_job_publishes_into_the_store_and_others_find_the_entry(shared, store, mount_store, job_of):
    mount = mount_store(shared)
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    one.put_group("KEY", KERNEL)
    assert {"triton/KEY/kernel.cubin", "triton/KEY/kernel.json"} <= set(entries_in(store))
    assert two.read("triton/KEY/kernel.cubin") == b"binary"
    assert mount.end_job("one").returncode == 0


def test_layers_in_the_store_work_without_passthrough(shared, store, mount_store, job_of):
    """The kernel would accept a file of bindfs as a backing file, and later fail the writes with EIO."""
    mount = mount_store(shared, "--layers", shared / ".cacheshim/layers")
    assert not mount.status()["passthrough"]
    one = job_of(mount, "one", 20001, env={"CACHESHIM_PUBLISH": "never"})
    one.put("KEY", "large", b"x" * (4 << 20))
    assert one.read("triton/KEY/large") == b"x" * (4 << 20)
    one("os.rename", one.path("triton/KEY/large"), one.path("triton/KEY/other"))
    one("os.unlink", one.path("triton/KEY/other"))
    one("os.rmdir", one.path("triton/KEY"))
    assert not one.exists("triton/KEY")


def test_without_a_directory_on_this_machine_the_layers_are_in_the_store(shared, mount_store, job_of):
    subprocess.run(["mount", "-o", "remount,ro", "/var/lib"], check=True)
    mount = mount_store(shared)
    assert ("cannot keep the layers of the store" in mount.log.read_text()
            and "Read-only file system; they are kept in the store" in mount.log.read_text())
    assert mount.status()["layers"] == f"{shared}/.cacheshim/layers"
    job_of(mount, "one", 20001).put("KEY", "private", b"not published")
    assert mount.layer_files("one")["triton/KEY/private"] == b"not published"


def test_a_directory_of_another_user_is_not_used_for_layers(shared, mount_store):
    strange = mounts.pathlib.Path("/var/lib/cacheshim")
    strange.mkdir(mode=0o777)
    strange.chmod(0o777)
    mount = mount_store(shared)
    assert "Operation not permitted; they are kept in the store" in mount.log.read_text()


def test_status_and_doctor_show_how_names_are_given(shared, mount_store, store):
    """bindfs supports RENAME_NOREPLACE, but not RENAME_EXCHANGE."""
    assert mount_store(shared).status()["renames"] == {"base": "links", "layers": "flags"}
    mount = mount_store(store)
    assert mount.status()["renames"] == {"base": "flags", "layers": "flags"}
    assert "by renameat2" in mount.cli("status").stdout
    doctor = mount.cli("doctor", check=False).stdout
    assert "renameat2 works with its flags" in doctor


def test_another_machines_entry_is_found_within_a_second(shared, store, mount_store, job_of):
    mount = mount_store(shared)
    one = job_of(mount, "one", 20001)
    assert not one.exists("triton/KEY/kernel.cubin")
    entry = store / "triton/KEY"
    entry.mkdir(parents=True)
    (entry / "kernel.cubin").write_bytes(b"of another machine")
    began = time.monotonic()
    wait_until(lambda: one.exists("triton/KEY/kernel.cubin"), 3, "the entry")
    assert time.monotonic() - began < 2.5  # 1.1 s on an idle machine


@pytest.mark.timeout_s(180)
def test_a_dead_machines_lease_is_taken_over(shared, mount_store, job_of):
    """A stopped daemon stands for a dead machine: it keeps its lock, as a file server keeps the lock of a dead
    client."""
    here, there = mount_store(shared), mount_store(shared)
    builder, waiter = job_of(there, "one", 20001), job_of(here, "two", 20002)
    assert not builder("create_and_look_up", builder.path("triton/KEY"), "stub.so")
    pid = there.daemon_pid()
    waiter.start("create_and_look_up", waiter.path("triton/KEY"), "stub.so")
    wait_until(lambda: here.stats()["flight_waits"] == 1, what="the wait")
    mounts.os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        assert not waiter.result()
        assert time.monotonic() - began < 25  # 15 s on an idle machine
    finally:
        mounts.os.kill(pid, signal.SIGCONT)


def test_a_job_publishes_without_the_flags_of_renameat2(scratch, store, mount_store, job_of):
    """Tests publishing, copy-up and the replacement of directories; the daemon normally uses the flags for these."""
    entry = store / "triton/OLD"
    entry.mkdir(parents=True)
    (entry / "kernel.cubin").write_bytes(b"old")
    mount = mounts.Mount(store, scratch / "mnt")
    mount.path.mkdir()
    result = mounts.run_mounting([sys.executable, "-B", WITHOUT_FLAGS, mounts.PROGRAM, "mount", "--store", store,
                                  mount.path], mount.log)
    try:
        assert result.returncode == 0, result.stderr
        assert mount.status()["renames"] == {"base": "links", "layers": "links"}
        assert "by link and unlink" in mount.cli("status").stdout
        one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
        one.put_group("KEY", KERNEL)
        assert two.read("triton/KEY/kernel.cubin") == b"binary"
        assert {"triton/KEY/kernel.cubin"} <= set(entries_in(store))
        two("os.chmod", two.path("triton/OLD/kernel.cubin"), 0o600)  # copies the file up
        two("os.unlink", two.path("triton/OLD/kernel.cubin"))
        two("os.makedirs", two.path("triton/NEW"))
        two("os.rename", two.path("triton/NEW"), two.path("triton/OLD"))
        assert two("os.listdir", two.path("triton/OLD")) == []
        assert one("os.listdir", one.path("triton/OLD")) == ["kernel.cubin"]
    finally:
        mount.close()
