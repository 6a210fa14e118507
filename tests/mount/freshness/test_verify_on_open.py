# SPDX-License-Identifier: Apache-2.0
"""verify_on_open: the daemon verifies code against its recorded digest before any process reads it."""

import json
import os

import mounts
import pytest

KERNEL = {"k.cubin": b"cubin" * 100, "k.ptx": b"ptx", "k.json": b"{}"}


@pytest.fixture
def mount_with(mount_store, store, scratch):
    def mount(line="verify_on_open = true", name=None):
        config = scratch / "c.toml"
        config.write_text(f"{line}\n")
        return mount_store(store, "--config", config, name=name)
    return mount


def log_of(mount):
    with open(os.path.join(mount.status()["run_dir"], "log"), encoding="utf-8") as log:
        return log.read()


def damage(mount, *parts):
    """Changes a file's content, but not its size, as a faulty disk does."""
    path = mount.base(*parts)
    data = path.read_bytes()
    path.write_bytes(bytes(byte ^ 1 for byte in data))


@pytest.mark.parametrize("name", ["k.cubin", "k.json", "__grp__kernel.json"])
def test_a_damaged_entry_is_missed_as_a_whole_and_built_anew(mount_with, job_of, name):
    """The result does not depend on which file is looked up first: a process that finds one file of an entry must
    find the others."""
    first = mount_with(name="mnt")
    one = job_of(first, "one", 20001)
    whole = one.put_group("KEY", KERNEL)
    one.close()
    damage(first, "triton/KEY/k.cubin")
    first.unmount()
    mount = mount_with(name="mnt")
    job = job_of(mount, "two", 20002)
    assert not job.exists(f"triton/KEY/{name}")
    assert not job.exists("triton/KEY") and not mount.base("triton/KEY").exists()
    assert mount.stats()["verify_failures"] == 1
    lines = [line for line in log_of(mount).splitlines() if "verify_on_open" in line]
    assert len(lines) == 1 and "'triton/KEY/k.cubin': its content differs from the record" in lines[0]
    assert "trash" in lines[0]
    job.put_group("KEY", KERNEL)
    assert {name: job.read(f"triton/KEY/{name}") for name in whole} == whole
    assert {path.name for path in mount.base("triton/KEY").iterdir()} == set(whole)
    assert mount.stats()["verify_failures"] == 1
    gone = json.loads(mount.cli("explain", "triton/KEY/k.cubin", "--json").stdout)
    assert gone["from"] == "base"


def test_a_process_that_has_looked_up_the_name_gets_a_miss_from_open(mount_with, job_of):
    mount = mount_with()
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    one.put_group("KEY", KERNEL)
    assert two.read("triton/KEY/k.cubin") == KERNEL["k.cubin"]
    damage(mount, "triton/KEY/k.cubin")
    with pytest.raises(FileNotFoundError):
        two.read("triton/KEY/k.cubin")
    assert not mount.base("triton/KEY").exists()
    two.put_group("KEY", KERNEL)
    assert one.read("triton/KEY/k.cubin") == KERNEL["k.cubin"]


def test_intact_files_are_read_once(mount_with, job_of):
    mount = mount_with()
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    one.put_group("KEY", KERNEL)
    daemon = f"/proc/{mount.daemon_pid()}/io"

    def bytes_read():
        with open(daemon, encoding="ascii") as counters:
            return int(counters.readline().split()[1])

    large = os.urandom(4 << 20)
    one.put_group("LARGE", {"k.cubin": large})
    two.exists("triton/LARGE/k.cubin")
    before = bytes_read()
    for _ in range(20):
        two.exists("triton/LARGE/k.cubin")
        two("os.close", two("os.open", two.path("triton/LARGE/k.cubin"), os.O_RDONLY))
    assert bytes_read() - before < len(large)
    assert mount.stats()["verify_failures"] == 0


def test_a_library_alone_in_its_entry(mount_with, job_of):
    mount = mount_with()
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    one.put("LAUNCHER", "stub.so", b"elf" * 1000)
    damage(mount, "triton/LAUNCHER/stub.so")
    assert not two("create_and_look_up", two.path("triton/LAUNCHER"), "stub.so")
    two.put("LAUNCHER", "stub.so", b"elf" * 1000)
    assert one.read("triton/LAUNCHER/stub.so") == b"elf" * 1000


def test_an_entry_of_another_daemon_is_checked_too(mount_with, job_of):
    first, second = mount_with(), mount_with()
    one, two = job_of(first, "one", 20001), job_of(second, "two", 20002)
    two.exists("triton/A/k.cubin")
    one.put_group("KEY", KERNEL)
    damage(first, "triton/KEY/k.cubin")
    assert not two.exists("triton/KEY/k.cubin")
    assert second.stats()["verify_failures"] == 1


def test_unrecorded_files_and_data_files_are_not_verified(
        mount_with, job_of, store):
    (store / "triton/OLD").mkdir(parents=True)
    (store / "triton/OLD/k.cubin").write_bytes(b"older than the records")
    mount = mount_with()
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    one.put_group("KEY", KERNEL)
    damage(mount, "triton/KEY/k.ptx")
    assert two.read("triton/KEY/k.ptx") != KERNEL["k.ptx"]
    assert two.read("triton/OLD/k.cubin") == b"older than the records"
    assert mount.stats()["verify_failures"] == 0


def test_files_of_the_jobs_own_layer_are_not_verified(mount_with, job_of):
    mount = mount_with()
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    one.put_group("KEY", KERNEL)
    two.write("triton/KEY/k.cubin", b"two's own")
    assert two.read("triton/KEY/k.cubin") == b"two's own"
    assert mount.stats()["verify_failures"] == 0


@pytest.mark.parametrize("line", ["", "verify_on_open = false"])
def test_verify_on_open_is_off_by_default(mount_with, job_of, line):
    mount = mount_with(line)
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    one.put_group("KEY", KERNEL)
    damage(mount, "triton/KEY/k.cubin")
    assert two.read("triton/KEY/k.cubin") == bytes(byte ^ 1 for byte in KERNEL["k.cubin"])
    assert mount.stats()["verify_failures"] == 0


def test_a_bad_value_is_refused(mount_with, store, scratch):
    config = scratch / "bad.toml"
    config.write_text('layers = ""\nverify_on_open = "yes"\n')
    point = scratch / "bad"
    point.mkdir()
    result = mounts.Mount(store, point).try_mount("--config", config)
    assert result.returncode == 2
    assert f"{config}:2: verify_on_open: must be true or false" in result.stderr
