# SPDX-License-Identifier: Apache-2.0
"""FUSE passthrough (the kernel itself reads and writes the backing file) is used, and changes only the speed."""

import mmap
import os
import re
import subprocess

import pytest

MIB = 1 << 20

KERNEL = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())

pytestmark = pytest.mark.skipif(KERNEL < (6, 9), reason="FUSE passthrough came with Linux 6.9")


def bytes_moved(pid):
    """Returns the number of bytes that the daemon has read and written so far, including FUSE requests and replies."""
    with open(f"/proc/{pid}/io", encoding="ascii") as file:
        fields = dict(line.split(": ") for line in file)
    return int(fields["rchar"]) + int(fields["wchar"])


def moved_by(mount, work):
    before = bytes_moved(mount.daemon_pid())
    work()
    return bytes_moved(mount.daemon_pid()) - before


def test_the_daemon_does_not_see_what_is_written(mount, job_of):
    job = job_of(mount, "one", 20001)
    job("os.makedirs", job.path("triton/KEY"))
    assert moved_by(mount, lambda: job.write("triton/KEY/large", b"x" * 8 * MIB)) < MIB
    assert job.read("triton/KEY/large") == b"x" * 8 * MIB


def test_the_daemon_does_not_see_what_is_read_where_nothing_is_published(mount, job_of):
    job = job_of(mount, "one", 20001, env={"CACHESHIM_PUBLISH": "never"})
    job("os.makedirs", job.path("triton/KEY"))
    job.write("triton/KEY/large", b"x" * 8 * MIB)
    assert moved_by(mount, lambda: job.read("triton/KEY/large")) < MIB


def test_writes_of_a_job_of_several_uids_go_through_the_daemon(mount, job_of):
    """The daemon must see the writes, to invalidate the other uid's view."""
    mount.cli("job", "start", "--shared-uids", "both")
    one, two = job_of(mount, "both", 20001), job_of(mount, "both", 20002)
    one("os.makedirs", one.path("triton/KEY"))
    assert moved_by(mount, lambda: one.write("triton/KEY/large", b"x" * 8 * MIB)) > 8 * MIB
    assert two.read("triton/KEY/large") == b"x" * 8 * MIB


def test_a_mapping_delays_publishing_after_its_descriptor_is_closed(mount, job_of):
    """The daemon does not publish the entry while the mapping exists, because the job could change the published file
    through the mapping."""
    job = job_of(mount, "one", 20001)
    job("os.makedirs", job.path("triton/KEY"))
    job("write_and_keep_mapped", job.path("triton/KEY/kernel.cubin"), b"written")
    job.put_group("KEY", {"kernel.json": b"{}"})
    assert not mount.base("triton/KEY").exists()
    job("unmap")
    job.close()
    mount.end_job("one")
    assert mount.base("triton/KEY/kernel.cubin").read_bytes() == b"mappedn"


def test_writes_by_a_mapping_show_when_its_descriptor_is_closed(mount, job_of):
    """While the mapping exists, the file stays in passthrough mode, so the kernel does not read the file into the
    mount's page cache. That cache would not show the mapping's writes to the backing file."""
    one, other = (job_of(mount, "one", 20001, env={"CACHESHIM_PUBLISH": "never"})
                  for _ in range(2))
    one("os.makedirs", one.path("triton/KEY"))
    one("write_and_keep_mapped", one.path("triton/KEY/file"), b"written")
    assert other.read("triton/KEY/file") == b"written"
    one("unmap")
    assert other.read("triton/KEY/file") == b"mappedn"


def test_outdated_pages_are_not_shown(mount, job_of):
    """Alternates between passthrough and reads through the daemon, which fill the page cache."""
    job = job_of(mount, "one", 20001)
    job("os.makedirs", job.path("triton/KEY"))
    for turn in range(4):
        data = bytes([turn]) * (MIB + turn)
        job.write("triton/KEY/file", data)
        assert job.read("triton/KEY/file") == data
        job("write_file", job.path("triton/KEY/file"), b"head", flags=os.O_RDWR)
        assert job.read("triton/KEY/file") == b"head" + data[4:]


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR])
def test_a_base_file_is_copied_up_and_not_touched(store, mount_store, job_of, flags):
    directory = store / "triton/KEY"
    directory.mkdir(parents=True)
    (directory / "file").write_bytes(b"base" * MIB)
    job = job_of(mount_store(store), "one", 20001)
    assert job.read("triton/KEY/file")[:4] == b"base"
    job("write_file", job.path("triton/KEY/file"), b"mine", flags=flags)
    assert job.read("triton/KEY/file") == b"mine" + (b"base" * MIB)[4:]
    assert (directory / "file").read_bytes() == b"base" * MIB


def test_a_layer_on_a_stacked_file_system_is_served_as_before(scratch, overlay):
    """The kernel refuses passthrough to files of overlayfs, so the daemon itself must read and write them."""
    for name in ("l", "stacked"):
        (scratch / name).mkdir()
    tmpfs = scratch / "tmpfs"
    tmpfs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmpfs], check=True)
    for name in ("u", "w"):
        (tmpfs / name).mkdir()
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                    f"lowerdir={scratch}/l,upperdir={tmpfs}/u,workdir={tmpfs}/w",
                    scratch / "stacked"], check=True)
    for name in ("upper", "work"):
        (scratch / "stacked" / name).mkdir()
    try:
        overlay.mount(directories=f"lowerdir={overlay.lowers[0]},upperdir={scratch}/stacked/upper,"
                              f"workdir={scratch}/stacked/work")
        with open(overlay.path / "file", "w+b") as file:
            file.write(b"x" * MIB)
            file.flush()
            with mmap.mmap(file.fileno(), MIB) as mapped:
                assert mapped[:4] == b"xxxx"
        assert (overlay.path / "file").read_bytes() == b"x" * MIB
    finally:
        overlay.close()
        subprocess.run(["umount", "-l", scratch / "stacked", tmpfs], check=True)
