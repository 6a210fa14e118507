# SPDX-License-Identifier: Apache-2.0
"""The attributes that the kernel has cached are the file system's current ones.

Outdated attributes would appear to change at some later time, when the kernel drops the inode. git, for example, would
then treat the file as modified."""

import json
import os

import pytest

USER = 20001
TOP = "w/top"
CHANGES = {
    "open": lambda job, at: job("write_file", at("dir/sub/0"), b"", flags=os.O_RDWR),
    "append": lambda job, at: job("write_file", at("dir/sub/0"), b"more", flags=os.O_WRONLY | os.O_APPEND),
    "truncate": lambda job, at: job("os.truncate", at("dir/sub/0"), 2),
    "chmod": lambda job, at: job("os.chmod", at("dir/sub/0"), 0o600),
    "setxattr": lambda job, at: job("os.setxattr", at("dir/sub/0"), "user.x", b"mine"),
    "utime": lambda job, at: job("os.utime", at("dir/sub/0"), (1, 2)),
    "utime-symlink": lambda job, at: job("os.utime", at("dir/soft"), (1, 2), follow_symlinks=False),
    "link": lambda job, at: job("os.link", at("dir/sub/0"), at("dir/link")),
    "rename": lambda job, at: job("os.rename", at("dir/sub/0"), at("dir/moved")),
    "unlink": lambda job, at: job("os.unlink", at("dir/sub/0")),
    "unlink-link": lambda job, at: job("os.unlink", at("dir/hard")),
    "write-link": lambda job, at: job("write_file", at("dir/sub/2"), b"more"),
    "create": lambda job, at: job("write_file", at("dir/sub/new"), b"new"),
    "mkdir": lambda job, at: job("os.mkdir", at("dir/sub/new")),
    "symlink": lambda job, at: job("os.symlink", "0", at("dir/sub/new")),
    "chmod-directory": lambda job, at: job("os.chmod", at("dir/sub"), 0o700),
    "rename-directory": lambda job, at: job("os.rename", at("dir"), at("other/moved")),
    "exchange": lambda job, at: job("exchange_repeatedly", at("dir"), at("other"), 1),
    "exchange-files": lambda job, at: job("exchange_repeatedly", at("dir/sub/0"), at("other/sub/1"), 1),
    "remove-directory": lambda job, at: job("shutil.rmtree", at("dir/sub")),
}


@pytest.fixture
def job(store, mount_store, job_of):
    for directory in ("dir", "other"):
        (store / TOP / directory / "sub").mkdir(parents=True)
        for number in range(3):
            (store / TOP / directory / f"sub/{number}").write_text("of the base")
        os.link(store / TOP / directory / "sub/2", store / TOP / directory / "hard")
        os.symlink("sub/1", store / TOP / directory / "soft")
    return job_of(mount_store(store), "mine", USER)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("owns_directories", [False, True])
def test_a_change_leaves_no_former_attributes(job, change, owns_directories):
    top = job.path(TOP)
    if owns_directories:  # the job's layer then also has a copy of dir/hard, a file with two names
        for name in ("dir/hard", "dir/sub", "dir", "other/sub", "other"):
            job("os.chmod", f"{top}/{name}", 0o750)
    assert job("compare_attributes", top) == {}  # the kernel has cached all of them
    CHANGES[change](job, lambda name: f"{top}/{name}")
    assert job("compare_attributes", top) == {}


def test_a_copy_up_keeps_the_times_of_the_layers_directory(job):
    def times():
        found = job("statx_of", sub, at_statx_force_sync)
        return found["mtime"], found["ctime"]

    at_statx_force_sync = 0x2000
    sub = job.path(f"{TOP}/dir/sub")
    job("os.chmod", sub, 0o750)
    before = times()
    for name in ("0", "1"):
        job("write_file", f"{sub}/{name}", b"mine", flags=os.O_WRONLY)
        assert times() == before
    job("os.chmod", sub, 0o700)
    assert times() > before


def test_publishing_leaves_no_former_attributes(job, store):
    job.put("KEY", "kernel.cubin", b"data")
    assert job("compare_attributes", job.path("triton")) == {}  # the kernel has cached those of the layer's file
    group = {"child_paths": {"kernel.cubin": job.path("triton/KEY/kernel.cubin")}}
    job.put("KEY", "__grp__kernel.json", json.dumps(group).encode())
    assert (store / "triton/KEY/kernel.cubin").exists()
    assert job("compare_attributes", job.path("triton")) == {}
