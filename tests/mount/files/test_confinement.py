# SPDX-License-Identifier: Apache-2.0
"""No job reaches files through the daemon that the job's user could not reach without the daemon."""

import os

import pytest

SECRET = b"nobody but root may read this"


@pytest.fixture
def secret(scratch):
    """A directory that only root can enter, with one file."""
    directory = scratch / "secret"
    directory.mkdir(mode=0o700)
    (directory / "file").write_bytes(SECRET)
    (directory / "file").chmod(0o600)
    yield directory
    assert sorted(os.listdir(directory)) == ["file"]
    assert (directory / "file").read_bytes() == SECRET


@pytest.fixture
def job(two_jobs):
    return two_jobs[0]


def test_a_link_out_of_the_store_opens_nothing(job, secret):
    job("os.makedirs", job.path("triton/KEY"))
    job("os.symlink", str(secret / "file"), job.path("triton/KEY/file"))
    with pytest.raises(PermissionError):
        job.read("triton/KEY/file")
    with pytest.raises(PermissionError):
        job.write("triton/KEY/file", b"overwritten")


@pytest.mark.parametrize("target", ["absolute", "relative"])
def test_a_linked_directory_as_parent_leads_nowhere_else(job, secret, target):
    up = os.path.relpath(secret, job.mount / ".jobs/one/triton")
    job("os.symlink", str(secret) if target == "absolute" else up, job.path("triton/out"))
    for call in (("read_file", "triton/out/file"), ("write_file", "triton/out/new", b"x"),
                 ("os.mkdir", "triton/out/directory"), ("os.unlink", "triton/out/file"),
                 ("os.listdir", "triton/out")):
        with pytest.raises(PermissionError):
            job(call[0], job.path(call[1]), *call[2:])
    job.write("triton/mine", b"mine")
    with pytest.raises(PermissionError):
        job("os.rename", job.path("triton/mine"), job.path("triton/out/moved"))


def test_links_in_the_base_do_not_lead_out_of_the_store(mount_store, store, secret, job_of):
    (store / "triton/KEY").mkdir(parents=True)
    (store / "triton/KEY/file").symlink_to(secret / "file")
    (store / "triton/LINKED").symlink_to(secret)
    job = job_of(mount_store(store), "one", 20001)
    for path in ("triton/KEY/file", "triton/LINKED/file"):
        with pytest.raises(PermissionError):
            job.read(path)
        with pytest.raises(PermissionError):
            job.write(path, b"x")
    with pytest.raises(PermissionError):
        job("os.listdir", job.path("triton/LINKED"))


def test_dots_do_not_climb_out(job, secret):
    for ups in range(1, 12):
        path = job.path("triton", *[".."] * ups, str(secret).lstrip("/"), "file")
        with pytest.raises((PermissionError, FileNotFoundError)):
            job("read_file", path)


def test_a_swapped_symlink_does_not_lead_the_daemon_out_of_the_store(mount, job_of, secret):
    """One process repeatedly exchanges a directory and a link to a directory outside the store. Another process works
    below the directory's name, and must never read the file outside."""
    swapper, worker = job_of(mount, "one", 20001), job_of(mount, "one", 20001)
    worker("os.makedirs", worker.path("triton/swap"))
    worker.write("triton/swap/file", b"in the view")
    swapper("os.symlink", str(secret), swapper.path("triton/other"))
    swapper.start("exchange_repeatedly", swapper.path("triton/swap"), swapper.path("triton/other"),
                  600)
    seen = worker("work_below_repeatedly", worker.path("triton/swap"), 600)
    swapper.result()
    assert seen <= {b"in the view", b"new"}, seen


def test_publishing_does_not_follow_links(mount, job, secret):
    job("os.makedirs", job.path("triton/KEY"))
    job("os.symlink", str(secret / "file"), job.path("triton/KEY/kernel.cubin"))
    job("os.symlink", str(secret), job.path("triton/KEY/directory"))
    job.put_group("KEY", {"kernel.json": b"{}"})
    mount.end_job("one")
    for directory, _directories, files in os.walk(mount.store):
        for name in files:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                with open(path, "rb") as file:
                    assert SECRET not in file.read(), path


@pytest.mark.timeout_s(40)
def test_a_fifo_in_an_entry_does_not_stop_the_daemon(mount, two_jobs):
    one, two = two_jobs
    one("os.makedirs", one.path("triton/KEY"))
    one("os.mkfifo", one.path("triton/KEY/fifo"))
    one.put_group("KEY", {"kernel.cubin": b"x"})
    mount.end_job("one")
    assert two.listdir("triton") is not None
    assert not (mount.base("triton/KEY/fifo")).exists()


def test_jobs_cannot_touch_the_store_itself(mount, job):
    job.write("triton/file", b"x")
    assert mount.uppers("one"), "the job has no layer"
    for path in (mount.store / "new", mount.store / ".cacheshim/new",
                 mount.uppers("one")[0] / "triton/file"):
        with pytest.raises(PermissionError):
            job("write_file", str(path), b"x")


@pytest.mark.parametrize("name", [".wh.file", ".wh..wh..opq", ".wh..wh.plnk"])
def test_names_of_whiteouts_cannot_be_forged(mount_store, store, job_of, name):
    (store / "triton/KEY").mkdir(parents=True)
    (store / "triton/KEY/file").write_bytes(b"of the base")
    mount = mount_store(store)
    one = job_of(mount, "one", 20001)
    try:
        one.write(f"triton/KEY/{name}", b"forged")
        assert one.read(f"triton/KEY/{name}") == b"forged"
    except OSError:
        pass  # a refusal is correct too
    assert one.read("triton/KEY/file") == b"of the base"
    assert "file" in one.listdir("triton/KEY")


def _state(path):
    status = os.lstat(path)
    return (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_size,
            path.read_bytes() if path.is_file() else None, os.listxattr(path))


def test_a_directory_that_a_view_has_removed_is_unchanged_in_the_base(mount_store, store, job_of):
    """An open descriptor remains valid after the name is gone; changes through it affect only the job."""
    (store / "triton/directory").mkdir(parents=True)
    (store / "triton/file").write_bytes(b"of the base")
    (store / "triton/replaced").write_bytes(b"of the base")
    watched = [store / "triton" / name for name in ("file", "directory", "replaced")]
    before = [_state(path) for path in watched]
    one = job_of(mount_store(store), "one", 20001)
    seen = one("change_removed", one.path("triton"))
    assert seen == {"mode": 0o600, "mtime": 1, "xattr": b"mine", "content": b"CHANGEDbase",
                    "other": b"CHANGEDbase", "nlink": 0, "directory_mode": 0o700,
                    "replaced": b"HI the base"}
    assert [_state(path) for path in watched] == before


def test_a_removed_directory_that_an_earlier_run_of_the_job_had_stays_the_bases(mount_store, store,
                                                                            job_of):
    """The process still holds a descriptor of the directory from the time when the directory was in the job's layer."""
    (store / "triton/directory").mkdir(parents=True)
    mount = mount_store(store)
    one = job_of(mount, "one", 20001)
    one.write("triton/directory/file", b"x")
    held = one("os.open", one.path("triton/directory"), os.O_RDONLY)
    mount.end_job("one", "failure")
    assert one.listdir("triton/directory") == []
    before = _state(store / "triton/directory")
    one("os.rmdir", one.path("triton/directory"))
    try:
        one("os.fchmod", held, 0o700)
    except OSError:
        pass  # a refusal is correct too
    assert _state(store / "triton/directory") == before
