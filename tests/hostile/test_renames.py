# SPDX-License-Identifier: Apache-2.0
"""During a rename between two directories, the kernel holds one mutex for the whole mount (s_vfs_rename_mutex), and all
other renames between directories wait for it. So the daemon must prevent users from making these renames slow."""

import errno

import pytest
from jobs import as_user

USER = 20001
MANY = 300
LARGE = 17 << 20


@pytest.fixture
def job(mount, job_of):
    for number in range(MANY):
        path = mount.base(f"other/many/{number}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    mount.base("other/few").mkdir()
    mount.base("other/few/file").write_bytes(b"x")
    mount.base("other/large").write_bytes(bytes(LARGE))
    mount.base("other/small").write_bytes(b"small")
    one = job_of(mount, "j", USER)
    one("os.makedirs", one.path("other/new"))
    return one


@pytest.mark.parametrize("name", ["many", "large"])
def test_a_rename_that_copies_much_of_the_base_is_refused(mount, job, name):
    assert job.errno_of("os.rename", job.path(f"other/{name}"), job.path(f"other/new/{name}")) == errno.EXDEV
    assert mount.base(f"other/{name}").exists() and job.listdir("other/new") == []


@pytest.mark.parametrize("name", ["many", "large"])
def test_an_exchange_with_much_of_the_base_is_refused(job, name):
    job.write("other/new/own", b"own")
    assert job.errno_of("agent_files.exchange_repeatedly", job.path("other/new/own"), job.path(f"other/{name}"),
                        1) == errno.EXDEV


@pytest.mark.parametrize("name", ["many", "large"])
def test_mv_copies_after_a_refused_rename(mount, job, name):
    moved = as_user(USER, ["mv", job.path(f"other/{name}"), job.path("other/new")], job="j")
    assert moved.returncode == 0, moved.stderr
    assert not job.exists(f"other/{name}") and mount.base(f"other/{name}").exists()
    if name == "many":
        assert len(job.listdir("other/new/many")) == MANY
    else:
        assert job("os.path.getsize", job.path("other/new/large")) == LARGE


@pytest.mark.parametrize("name", ["few", "small"])
def test_little_of_the_base_can_be_renamed(job, name):
    job("os.rename", job.path(f"other/{name}"), job.path(f"other/new/{name}"))
    assert job.exists(f"other/new/{name}") and not job.exists(f"other/{name}")


@pytest.mark.parametrize("name", ["many", "large"])
def test_a_rename_within_a_directory_has_no_limit(job, name):
    job("os.rename", job.path(f"other/{name}"), job.path("other/renamed"))
    assert job.exists("other/renamed") and not job.exists(f"other/{name}")


def test_a_users_own_files_have_no_limit(job):
    job("os.mkdir", job.path("other/own"))
    for number in range(MANY):
        job.write(f"other/own/{number}", b"own")
    job.write("other/own/large", bytes(LARGE))
    job("os.rename", job.path("other/own"), job.path("other/new/own"))
    assert len(job.listdir("other/new/own")) == MANY + 1
