# SPDX-License-Identifier: Apache-2.0
"""One user writes as much as possible; other users and root can still write (max_layer_size, max_layer_files)."""

import os
import pathlib
import shutil

import pytest
from jobs import wait_until
from mounts import limit_of

HOSTILE, VICTIM = 20001, 20002
MIB = 1 << 20


@pytest.fixture(autouse=True)
def limits_agent(scratch):
    module = pathlib.Path(__file__).parent / "agent_limits.py"
    shutil.copyfile(module, scratch / module.name)
    (scratch / module.name).chmod(0o644)


def free_of(path):
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize, (state.f_bfree - state.f_bavail) * state.f_frsize


def fill(job, name, mib, **options):
    return job("agent_limits.fill", job.path(name), mib, **options)


def test_writes_beyond_the_limit_fail_with_edquot(mount_limiting, job_of):
    mount = mount_limiting('max_layer_size = "4M"')
    job, other = job_of(mount, "j", HOSTILE), job_of(mount, "k", VICTIM)
    job("os.makedirs", job.path("triton/d"))
    done, error = fill(job, "triton/d/f", 10)
    assert error == "EDQUOT" and 3 * MIB <= done <= 4 * MIB
    assert fill(job, "triton/d/g", 1)[1] == "EDQUOT"
    with pytest.raises(OSError, match="quota exceeded"):
        job("os.posix_fallocate", job("os.open", job.path("triton/d/f"), os.O_RDWR), 0, 8 * MIB)
    # The user can overwrite existing data, but the user's other jobs get no space.
    fd = job("os.open", job.path("triton/d/f"), os.O_RDWR)
    assert job("os.pwrite", fd, b"x" * 4096, 0) == 4096
    assert fill(job_of(mount, "l", HOSTILE), "triton/h", 1)[1] == "EDQUOT"
    other("os.makedirs", other.path("triton"), exist_ok=True)
    assert fill(other, "triton/f", 3) == (3 * MIB, None)
    root = job_of(mount, "r", 0)
    root("os.makedirs", root.path("triton"), exist_ok=True)
    assert fill(root, "triton/f", 6) == (6 * MIB, None)


def test_removed_files_can_be_written_again(mount_limiting, job_of):
    mount = mount_limiting('max_layer_size = "4M"')
    job = job_of(mount, "j", HOSTILE)
    job("os.makedirs", job.path("triton/d"))
    assert fill(job, "triton/d/f", 10)[1] == "EDQUOT"
    job("agent_limits.release_all")
    job("os.unlink", job.path("triton/d/f"))
    wait_until(lambda: fill(job, "triton/d/g", 2)[1] is None or job("agent_limits.release_all"),
               what="the measurement of the layer")


def test_an_open_file_without_a_name_counts(mount_limiting, job_of):
    mount = mount_limiting('max_layer_size = "4M"')
    job = job_of(mount, "j", HOSTILE)
    job("os.makedirs", job.path("triton"), exist_ok=True)
    assert fill(job, "triton/f", 10)[1] == "EDQUOT"
    job("os.unlink", job.path("triton/f"))
    wait_until(lambda: limit_of(mount, "max_layer_files")["used"] <= 2, what="the measurement of the layer")
    assert limit_of(mount, "max_layer_size")["used"] >= 3 * MIB
    assert fill(job, "triton/g", 2)[1] == "EDQUOT"


def test_the_number_of_files_is_limited(mount_limiting, job_of):
    mount = mount_limiting("max_layer_files = 100")
    job, other = job_of(mount, "j", HOSTILE), job_of(mount, "k", VICTIM)
    job("os.makedirs", job.path("triton/d"))
    done, error = job("agent_limits.create_many", job.path("triton/d"), 200)
    assert error == "EDQUOT" and 90 <= done <= 100
    for call in (("os.mkdir", job.path("triton/e")), ("os.symlink", "x", job.path("triton/e")),
                 ("os.link", job.path("triton/d/1"), job.path("triton/e")), ("os.mkfifo", job.path("triton/e"))):
        with pytest.raises(OSError, match="quota exceeded"):
            job(*call)
    other("os.makedirs", other.path("triton/d"))
    assert other("agent_limits.create_many", other.path("triton/d"), 50) == (50, None)


def test_copies_of_base_files_count(mount_limiting, store, job_of):
    (store / "triton").mkdir()
    (store / "triton/big").write_bytes(os.urandom(6 * MIB))
    mount = mount_limiting('max_layer_size = "4M"')
    job = job_of(mount, "j", HOSTILE)
    with pytest.raises(OSError, match="quota exceeded"):
        job("os.open", job.path("triton/big"), os.O_RDWR)
    with pytest.raises(OSError, match="quota exceeded"):
        job("os.rename", job.path("triton/big"), job.path("triton/moved"))
    assert job("os.path.getsize", job.path("triton/big")) == 6 * MIB


def test_a_file_that_the_kernel_writes_is_emptied(mount_limiting, job_of):
    """With passthrough, the daemon receives no WRITE requests. If a file has grown and its user is over the limit, the
    daemon empties the file."""
    mount = mount_limiting('max_layer_size = "8M"')
    job = job_of(mount, "j", HOSTILE)
    job("os.makedirs", job.path("triton"), exist_ok=True)
    done, error = fill(job, "triton/f", 64, flags=os.O_CREAT | os.O_WRONLY)
    if error is None:  # passthrough: the kernel writes without the daemon
        wait_until(lambda: job("os.path.getsize", job.path("triton/f")) < 64 * MIB, what="the emptying of the file")
        with open(os.path.join(mount.status()["run_dir"], "log"), encoding="utf-8") as log:
            assert "max_layer_size" in log.read()
    else:
        assert (error, done <= 8 * MIB) == ("EDQUOT", True)
        assert limit_of(mount, "max_layer_size")["refused"] > 0
    job("agent_limits.release_all")


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY])
def test_layers_do_not_take_the_blocks_that_are_kept_for_root(mount_limiting, disk, job_of, flags):
    layers = disk("layers", 64)
    mount = mount_limiting("max_layer_size = 0", "--layers", layers)
    job, other = job_of(mount, "j", HOSTILE), job_of(mount, "k", VICTIM)
    for one in (job, other):
        one("os.makedirs", one.path("triton"), exist_ok=True)
    assert fill(job, "triton/f", 128, flags=os.O_CREAT | flags)[1] == "ENOSPC"
    assert fill(other, "triton/f", 128, flags=os.O_CREAT | flags)[1] == "ENOSPC"
    os.sync()
    available, kept = free_of(layers)
    assert kept >= 6 * MIB, (available, kept)
    with open(layers / "root", "wb") as file:  # root can still use these blocks
        file.write(os.urandom(4 * MIB))
    job("agent_limits.release_all")
    job("os.unlink", job.path("triton/f"))
    wait_until(lambda: fill(job, "triton/g", 1)[1] is None or job("agent_limits.release_all"), what="room for a file")


def test_one_user_can_use_at_most_half_of_the_disk(mount_limiting, disk, job_of):
    layers = disk("layers", 8192)
    mount = mount_limiting("", "--layers", layers)
    job, other = job_of(mount, "j", HOSTILE), job_of(mount, "k", VICTIM)
    for one in (job, other):
        one("os.makedirs", one.path("triton"), exist_ok=True)
    done, error = job("agent_limits.reserve", job.path("triton/f"), 8192)
    assert error == "EDQUOT" and done > 2048 * MIB
    assert free_of(layers)[0] >= 0.45 * 8192 * MIB * 0.88
    assert fill(other, "triton/f", 16) == (16 * MIB, None)
