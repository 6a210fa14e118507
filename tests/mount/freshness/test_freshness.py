# SPDX-License-Identifier: Apache-2.0
"""Changes to the base by processes outside the mount become visible through invalidations, in every view that has
cached the names.

The kernel caches names for a minute, so a change that is visible within seconds was invalidated.
"""

import os
import pathlib
import stat
import tempfile
import time

import pytest
from jobs import wait_until
from mounts import setting

SECONDS = 5  # far longer than an invalidation takes, far shorter than a minute
SETTLE_SECONDS = 7  # longer than kSettleSeconds, in which a changed file's attributes have a timeout of 1 s


@pytest.fixture(params=["fanotify", "inotify"])
def watched(request, scratch, store, mount_store):
    """watched() mounts the store. The daemon watches the base with fanotify or inotify, as the fixture's parameter
    says."""
    def mount():
        config = scratch / "watch.toml"
        config.write_text(f'watch = "{request.param}"\n')
        mounted = mount_store(store, "--config", config)
        assert mounted.status()["watch"] == request.param
        assert request.param in mounted.cli("status").stdout
        return mounted

    mount.mode = request.param
    return mount


@pytest.fixture(scope="module")
def old_keys(all_scratch):
    """Entries whose files have not changed recently, so that the kernel caches their attributes for a minute. The
    fixture `key` moves one of them into the base."""
    top = pathlib.Path(tempfile.mkdtemp(dir=all_scratch))
    for number in range(40):
        directory = top / str(number)
        directory.mkdir()
        for name in ("a", "b"):
            (directory / name).write_bytes(b"old " + name.encode())
    wait_until(lambda: time.time() - (directory / "b").stat().st_ctime > SETTLE_SECONDS, 60,
               "the age of the files")
    return iter(list(top.iterdir()))


@pytest.fixture
def key(store, old_keys):
    """The entry triton/KEY in the base, with the files `a` and `b`."""
    (store / "triton").mkdir(parents=True)
    return next(old_keys).rename(store / "triton/KEY")


@pytest.fixture
def views(watched, key, job_of):
    """Two jobs that have looked up every file of the entry, and names that do not exist."""
    mount = watched()
    jobs = [job_of(mount, name, uid) for name, uid in (("one", 20001), ("two", 20002))]
    for job in jobs:
        assert job.listdir("triton/KEY") == ["a", "b"]
        assert job.read("triton/KEY/a") == b"old a"
        assert job.read("triton/KEY/b") == b"old b"
        assert job.exists("triton/KEY/a") and job.exists("triton/KEY/b")  # stat again: the reads have changed the atime
        for missing in ("triton/KEY/c", "triton/NEW", "triton/KEY/d/e"):
            assert not job.exists(missing)
    return jobs


def seen(jobs, what, *call):
    for job in jobs:
        wait_until(lambda job=job: call[0](job, *call[1:]), SECONDS, f"{what} in {job.job}")


def reads(job, name, data):
    return job.exists(name) and job.read(name) == data


def test_a_new_file_is_seen_where_there_was_none(views, key):
    (key / "c").write_bytes(b"new")
    seen(views, "the file", reads, "triton/KEY/c", b"new")
    seen(views, "the name in the list", lambda job: job.listdir("triton/KEY") == ["a", "b", "c"])


def test_a_new_key_is_seen_with_all_that_is_in_it(views, store):
    (store / "triton/NEW/sub").mkdir(parents=True)
    (store / "triton/NEW/sub/x").write_bytes(b"new")
    seen(views, "the file", reads, "triton/NEW/sub/x", b"new")


def test_a_new_directory_of_a_view_shows_the_bases_files(views, store):
    for job in views:
        job("os.mkdir", job.path("triton/NEW"))
        assert not job.exists("triton/NEW/x")
    (store / "triton/NEW").mkdir()
    (store / "triton/NEW/x").write_bytes(b"new")
    seen(views, "the file", reads, "triton/NEW/x", b"new")


def test_a_replaced_file_is_read_anew(views, key):
    (key / "tmp").write_bytes(b"another one")
    os.rename(key / "tmp", key / "a")
    seen(views, "the new file", reads, "triton/KEY/a", b"another one")


def test_a_removed_file_is_gone(views, key):
    os.unlink(key / "a")
    seen(views, "the removal", lambda job: not job.exists("triton/KEY/a"))
    seen(views, "the removal in the list", lambda job: job.listdir("triton/KEY") == ["b"])


def test_a_file_written_in_place_is_read_anew_once_it_is_closed(views, key):
    with open(key / "a", "r+b", buffering=0) as file:
        file.write(b"OLD")
    seen(views, "the new bytes", reads, "triton/KEY/a", b"OLD a")
    with open(key / "a", "ab") as file:
        file.write(b" and more")
    seen(views, "the new size", reads, "triton/KEY/a", b"OLD a and more")


def test_changed_attributes_are_seen(views, key):
    os.utime(key / "a", ns=(1, 1_000_000_123))
    os.chmod(key / "b", 0o750)
    seen(views, "the time",
         lambda job: job("os.stat", job.path("triton/KEY/a")).st_mtime_ns == 1_000_000_123)
    # The file's owner is root, so mode 0750 gives no right to the views' users. The views then show the real mode.
    seen(views, "the mode", lambda job: stat.S_IMODE(job("os.stat", job.path("triton/KEY/b")).st_mode)
         == 0o750)


def test_a_directory_that_is_replaced_by_another_shows_the_other(views, key, store):
    other = store / "triton/other"
    other.mkdir()
    (other / "a").write_bytes(b"other a")
    (other / "c").write_bytes(b"other c")
    os.rename(key, store / "triton/away")
    os.rename(other, key)
    seen(views, "the other's file", reads, "triton/KEY/a", b"other a")
    seen(views, "its further file", reads, "triton/KEY/c", b"other c")
    seen(views, "that there is no b", lambda job: not job.exists("triton/KEY/b"))
    # The directories are now watched under their new names.
    (key / "d").write_bytes(b"late")
    (store / "triton/away/late").write_bytes(b"late too")
    seen(views, "a later file", reads, "triton/KEY/d", b"late")
    seen(views, "one in the other", reads, "triton/away/late", b"late too")


def test_a_removed_tree_can_be_created_again(views, key, store):
    for name in ("a", "b"):
        os.unlink(key / name)
    key.rmdir()
    seen(views, "the removal", lambda job: not job.exists("triton/KEY"))
    key.mkdir()
    (key / "a").write_bytes(b"again")
    seen(views, "the new tree", reads, "triton/KEY/a", b"again")


def test_an_open_file_goes_on_when_its_name_is_replaced(views, key):
    job = views[0]
    fd = job("os.open", job.path("triton/KEY/a"), os.O_RDONLY)
    (key / "tmp").write_bytes(b"another one")
    os.rename(key / "tmp", key / "a")
    seen(views, "the new file", reads, "triton/KEY/a", b"another one")
    assert job("os.pread", fd, 100, 0) == b"old a"


def test_everything_expires_when_invalidations_are_lost(watched, key, store, job_of):
    with setting(f"/proc/sys/fs/{watched.mode}/max_queued_events", "2"):
        mount = watched()
    job = job_of(mount, "one", 20001)
    assert job.read("triton/KEY/a") == b"old a"
    assert not job.exists("triton/KEY/last")
    # Causes more events at once than the queue holds: some are lost.
    for number in range(500):
        (key / f"n{number}").write_bytes(b"")
    (key / "tmp").write_bytes(b"another one")
    os.rename(key / "tmp", key / "a")
    (key / "last").write_bytes(b"last")
    seen([job], "the new file", reads, "triton/KEY/a", b"another one")
    seen([job], "the last file", reads, "triton/KEY/last", b"last")


def test_without_a_watch_a_change_is_seen_when_its_second_is_over(scratch, store, key, mount_store,
                                                                 job_of):
    config = scratch / "watch.toml"
    config.write_text('watch = "none"\n')
    mount = mount_store(store, "--config", config)
    assert mount.status()["watch"] == "none"
    assert "within 1 s" in mount.cli("status").stdout
    job = job_of(mount, "one", 20001)
    assert not job.exists("triton/KEY/c")
    assert job.read("triton/KEY/a") == b"old a"
    (key / "c").write_bytes(b"new")
    os.unlink(key / "a")
    seen([job], "the file", reads, "triton/KEY/c", b"new")
    seen([job], "the removal", lambda job: not job.exists("triton/KEY/a"))


def test_an_unknown_way_of_watching_is_refused(scratch, store, mount_store):
    config = scratch / "watch.toml"
    config.write_text('watch = "polling"\n')
    with pytest.raises(AssertionError, match="must be one of fanotify, inotify, none"):
        mount_store(store, "--config", config)
