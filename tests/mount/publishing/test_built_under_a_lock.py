# SPDX-License-Identifier: Apache-2.0
"""Files that a compiler writes in place while its caller holds the lock on a lock file (a profile's built_under) are
published at the unlock, so that the next holder of the lock finds them."""

import fcntl
import os

import pytest
from jobs import wait_until

LOCK = "inductor/locks/cab.lock"
LIBRARY = "inductor/ab/cab.main.so"
WRITE = os.O_WRONLY | os.O_CREAT


@pytest.fixture
def build(mount, two_jobs):
    """Two jobs that need the same library; the first has locked it, the second waits for the lock."""
    locks = []
    for job in two_jobs:
        for directory in ("inductor/locks", "inductor/ab"):
            job("os.makedirs", job.path(directory), exist_ok=True)
        locks.append(job("os.open", job.path(LOCK), os.O_RDWR | os.O_CREAT))
    one, two = two_jobs
    one("fcntl.flock", locks[0], fcntl.LOCK_EX)
    assert not one.exists(LIBRARY) and not two.exists(LIBRARY)
    before = mount.stats()["lock_waits"]
    two.start("fcntl.flock", locks[1], fcntl.LOCK_EX)
    wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")
    return one, two, locks[0]


@pytest.mark.parametrize("arrival", ["write", "rename", "link", "symlink"])
def test_a_job_that_waited_for_the_lock_finds_the_library(mount, build, arrival):
    one, two, lock = build
    if arrival == "write":
        one.write(LIBRARY, b"built")
    elif arrival == "symlink":
        one.write("inductor/ab/cab.so", b"built")
        one("os.symlink", "cab.so", one.path(LIBRARY))
    else:
        one.write(LIBRARY + ".tmp", b"built")
        one(f"os.{arrival}", one.path(LIBRARY + ".tmp"), one.path(LIBRARY))
    if arrival == "link":
        one("os.unlink", one.path(LIBRARY + ".tmp"))
    assert not mount.base(LIBRARY).exists()
    one("fcntl.flock", lock, fcntl.LOCK_UN)
    two.result()
    assert two.read(LIBRARY) == mount.base(LIBRARY).read_bytes() == b"built"
    assert mount.layer_files("two") == {}


def locked_by_record(build):
    """Replaces the flock lock of `build` with a record lock of the first job; the second job then requests no lock.
    Returns the jobs and the first job's descriptor."""
    one, two, lock = build
    one("fcntl.flock", lock, fcntl.LOCK_UN)
    two.result()
    file = one("os.open", one.path(LOCK), os.O_RDWR)
    one("set_record", file)
    return one, two, file


def test_a_holders_death_completes_nothing(mount, build):
    one, two, _ = build
    one.write(LIBRARY, b"half")
    one.kill()
    two.result()
    assert not two.exists(LIBRARY) and not mount.base(LIBRARY).exists()
    two.write(LIBRARY, b"built")
    assert mount.stats()["entries_published"] == 0


def test_files_of_a_dead_holder_do_not_count_for_the_next_one(mount, build, job_of):
    one, two, _ = build
    heir = job_of(mount, "one", 20001)
    lock = heir("os.open", heir.path(LOCK), os.O_RDWR)
    one.write(LIBRARY, b"half")
    one.kill()
    two.result()
    two.kill()
    heir("fcntl.flock", lock, fcntl.LOCK_EX)
    assert heir.read(LIBRARY) == b"half"
    heir("fcntl.flock", lock, fcntl.LOCK_UN)
    assert not mount.base(LIBRARY).exists()


def test_files_from_before_a_close_without_an_unlock_do_not_count_for_the_next_holder(mount, build):
    one, two, file = locked_by_record(build)
    one.write(LIBRARY, b"half")
    one("os.close", file)
    file = one("os.open", one.path(LOCK), os.O_RDWR)
    one("set_record", file)
    one("set_record", file, kind=fcntl.F_UNLCK)
    assert not mount.base(LIBRARY).exists()


def test_an_unlock_without_a_lock_completes_nothing(mount, build, job_of):
    one, _, _ = build
    other = job_of(mount, "one", 20001)
    idle = other("os.open", other.path(LOCK), os.O_RDWR)
    one.write(LIBRARY, b"half")
    other("fcntl.flock", idle, fcntl.LOCK_UN)
    assert not mount.base(LIBRARY).exists()


def test_another_lock_completes_nothing(mount, build):
    one, _, _ = build
    one.write(LIBRARY, b"half")
    for name in ("inductor/locks/ca.lock", "inductor/locks/cab.main.so.lock"):
        other = one("os.open", one.path(name), os.O_RDWR | os.O_CREAT)
        one("fcntl.flock", other, fcntl.LOCK_EX)
        one("fcntl.flock", other, fcntl.LOCK_UN)
        assert not mount.base(LIBRARY).exists(), name


def test_open_files_wait_for_the_jobs_success(mount, build):
    one, two, lock = build
    file = one("os.open", one.path(LIBRARY), WRITE)
    one("os.write", file, b"half")
    one("fcntl.flock", lock, fcntl.LOCK_UN)
    two.result()
    one("os.close", file)
    assert not two.exists(LIBRARY) and not mount.base(LIBRARY).exists()
    one.kill()
    mount.end_job("one")
    assert mount.base(LIBRARY).read_bytes() == b"half"


def test_a_library_that_is_renamed_into_place_is_published(mount, build):
    """Some linkers write a temporary file beside the library and rename it."""
    one, two, lock = build
    one.write(LIBRARY + ".12", b"built")
    one("os.rename", one.path(LIBRARY + ".12"), one.path(LIBRARY))
    assert not mount.base(LIBRARY).exists()
    one("fcntl.flock", lock, fcntl.LOCK_UN)
    two.result()
    assert two.read(LIBRARY) == b"built"


def test_the_end_of_a_record_lock_publishes_too(mount, build):
    one, two, file = locked_by_record(build)
    one.write(LIBRARY, b"built")
    one("set_record", file, kind=fcntl.F_UNLCK)
    assert two.read(LIBRARY) == b"built"


def test_a_job_that_publishes_at_its_end_keeps_it(mount, job_of):
    quiet = job_of(mount, "quiet", 20003, env={"CACHESHIM_PUBLISH": "end"})
    for directory in ("inductor/locks", "inductor/ab"):
        quiet("os.makedirs", quiet.path(directory), exist_ok=True)
    lock = quiet("os.open", quiet.path(LOCK), os.O_RDWR | os.O_CREAT)
    quiet("fcntl.flock", lock, fcntl.LOCK_EX)
    quiet.write(LIBRARY, b"built")
    quiet("fcntl.flock", lock, fcntl.LOCK_UN)
    assert quiet.read(LIBRARY) == b"built" and not mount.base(LIBRARY).exists()


def test_only_the_end_of_an_exclusive_lock_counts(mount, job_of):
    one = job_of(mount, "one", 20001)
    for directory in ("inductor/locks", "inductor/ab"):
        one("os.makedirs", one.path(directory), exist_ok=True)
    file = one("os.open", one.path(LOCK), os.O_RDWR | os.O_CREAT)
    one("fcntl.flock", file, fcntl.LOCK_SH)
    one.write(LIBRARY, b"half")
    one("fcntl.flock", file, fcntl.LOCK_UN)
    assert not mount.base(LIBRARY).exists()
    one("set_record", file)
    one.write(LIBRARY, b"more")
    one("set_record", file, start=1, length=1, kind=fcntl.F_UNLCK)
    assert not mount.base(LIBRARY).exists()
    one("set_record", file, kind=fcntl.F_UNLCK)
    assert mount.base(LIBRARY).read_bytes() == b"more"


@pytest.mark.parametrize("lock_file", [LOCK, "torch-extensions/py311_cpu/op/lock"])
def test_a_holder_may_remove_the_lock_file_before_it_unlocks(mount, two_jobs, lock_file):
    """filelock 3.24 to 3.29 remove their lock file in this way."""
    one, two = two_jobs
    made = LIBRARY if lock_file == LOCK else os.path.dirname(lock_file) + "/op.so"
    for job in two_jobs:
        for path in (lock_file, made):
            job("os.makedirs", os.path.dirname(job.path(path)), exist_ok=True)
    lock = one("os.open", one.path(lock_file), os.O_RDWR | os.O_CREAT)
    one("fcntl.flock", lock, fcntl.LOCK_EX)
    one.write(made, b"built")
    assert not two.exists(made)
    one("os.unlink", one.path(lock_file))
    assert two.read(made) == b"built"
    one("fcntl.flock", lock, fcntl.LOCK_UN)


def test_the_removal_of_a_lock_file_by_another_process_completes_nothing(mount, build, job_of):
    one, _, _ = build
    one.write(LIBRARY, b"half")
    job_of(mount, "one", 20001)("os.unlink", one.path(LOCK))
    assert not mount.base(LIBRARY).exists()


# ---- Entries that are directories, into which the builders write before they take the lock: torch ≥ 2.14
# (load_inline's main.cpp, then `lock` in the directory), FlashInfer (`tmp/NAME.lock` beside the directory).

EXTENSION, OPERATOR = "torch-extensions/py311_cpu/op", "flashinfer/0.7.2/90a/cached_ops/op"
BATON, SOURCE, LIBRARY_OF_ONE = f"{EXTENSION}/lock", f"{EXTENSION}/main.cpp", f"{EXTENSION}/op.so"


class Builder:
    """A process that has written the source and opened the lock file."""

    def __init__(self, job, entry=EXTENSION, lock_file=BATON, source=b"source"):
        self.job, self.entry, self._lock_file = job, entry, lock_file
        for directory in (entry, os.path.dirname(lock_file)):
            job("os.makedirs", job.path(directory), exist_ok=True)
        job.write(f"{entry}/main.cpp", source)
        assert not job.exists(f"{entry}/op.so")
        self._lock = job("os.open", job.path(lock_file), os.O_RDWR | os.O_CREAT)

    def lock(self):
        self.job("fcntl.flock", self._lock, fcntl.LOCK_EX)

    def try_lock(self):
        return self.job("try_flock", self._lock)

    def start_lock(self, mount):
        before = mount.stats()["lock_waits"]
        self.job.start("fcntl.flock", self._lock, fcntl.LOCK_EX)
        wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")

    def modified(self, name):
        return self.job("os.stat", self.job.path(self.entry, name)).st_mtime_ns

    def unlock(self):
        self.job("fcntl.flock", self._lock, fcntl.LOCK_UN)

    def build(self, *names):
        for name in names or ("main.o", "op.so"):
            self.job.write(f"{self.entry}/{name}", b"built " + name.encode())


@pytest.fixture(params=[(EXTENSION, BATON), (OPERATOR, "flashinfer/0.7.2/90a/cached_ops/tmp/op.lock")],
                ids=["within", "beside"])
def builders(request, mount, two_jobs):
    """Two builders of one entry: the first one has locked it, and the second one waits for the lock."""
    one, two = (Builder(job, *request.param) for job in two_jobs)
    one.lock()
    two.start_lock(mount)
    return one, two


def test_a_waiter_that_has_begun_the_entry_finds_the_build(mount, builders):
    one, two = builders
    one.build()
    one.unlock()
    two.job.result()
    files = {name: b"built " + name.encode() for name in ("main.o", "op.so")}
    files["main.cpp"] = b"source"
    for name, data in files.items():
        assert two.job.read(f"{two.entry}/{name}") == mount.base(two.entry, name).read_bytes() == data
        base = mount.base(two.entry, name).stat()
        # ninja compares the modification times, so the view must show the published ones.
        assert two.modified(name) == base.st_mtime_ns
    assert [name for name in mount.layer_files("two") if not name.endswith("lock")] == []
    assert not mount.base(BATON).exists()


def test_a_process_that_polls_for_the_lock_finds_the_build(mount, two_jobs):
    one, two = (Builder(job) for job in two_jobs)
    one.lock()
    assert not two.try_lock()
    one.build()
    one.unlock()
    own = two.modified("main.cpp")  # the kernel caches the answers
    assert not two.job.exists(LIBRARY_OF_ONE)
    assert two.try_lock()
    assert two.job.read(LIBRARY_OF_ONE) == b"built op.so"
    assert two.modified("main.cpp") == mount.base(SOURCE).stat().st_mtime_ns != own


def test_a_failed_build_is_not_published(mount, builders):
    one, two = builders
    one.build("main.o")
    one.unlock()
    two.job.result()
    assert two.job.listdir(two.entry) in (["lock", "main.cpp"], ["main.cpp"])
    assert not mount.base(two.entry).exists()
    two.build()
    two.unlock()
    assert mount.base(two.entry, "op.so").exists()


def test_a_waiter_builds_when_the_builder_is_killed(mount, builders):
    one, two = builders
    one.build("main.o", "op.so")
    one.job.kill()
    two.job.result()
    assert not two.job.exists(f"{two.entry}/op.so") and not mount.base(two.entry).exists()
    two.build()
    two.unlock()
    assert mount.base(two.entry, "op.so").read_bytes() == b"built op.so"


def test_a_waiter_with_another_source_keeps_its_source(mount, two_jobs):
    one, two = Builder(two_jobs[0]), Builder(two_jobs[1], source=b"another source")
    one.lock()
    one.build()
    one.unlock()
    two.lock()
    assert two.job.read(SOURCE) == b"another source" and not two.job.exists(LIBRARY_OF_ONE)


def test_a_job_that_may_not_publish_neither_waits_nor_is_waited_for(mount, two_jobs, job_of):
    quiet = Builder(job_of(mount, "quiet", 20003, env={"CACHESHIM_PUBLISH": "never"}))
    one = Builder(two_jobs[0])
    quiet.lock()
    assert one.try_lock()
    quiet.build()
    quiet.unlock()
    assert quiet.try_lock()  # although job one has locked the base's file
    assert not mount.base(EXTENSION).exists()
    one.build()
    one.unlock()
    assert mount.base(LIBRARY_OF_ONE).read_bytes() == b"built op.so"
    assert set(mount.layer_files("quiet")) >= {SOURCE, f"{EXTENSION}/main.o", LIBRARY_OF_ONE}


def test_creators_and_lockers_of_one_baton_share_a_store(mount, two_jobs, job_of):
    """torch ≤ 2.13 creates the file that torch ≥ 2.14 locks, and waits as long as the file exists."""
    locker, later = (Builder(job) for job in two_jobs)
    maker = job_of(mount, "maker", 20003)
    locker.lock()
    maker("os.makedirs", maker.path(EXTENSION), exist_ok=True)
    maker("os.close", maker("os.open", maker.path(BATON), os.O_CREAT | os.O_EXCL))
    maker.write(SOURCE, b"source")
    assert not later.try_lock()
    maker.write(LIBRARY_OF_ONE, b"built op.so")
    maker("os.remove", maker.path(BATON))
    assert mount.base(LIBRARY_OF_ONE).exists()
    locker.build()
    locker.unlock()
    assert later.try_lock() and later.job.read(LIBRARY_OF_ONE) == b"built op.so"
    next_maker = job_of(mount, "next", 20004)
    assert not next_maker.exists(BATON) and next_maker.read(LIBRARY_OF_ONE) == b"built op.so"
    next_maker("os.close", next_maker("os.open", next_maker.path(BATON), os.O_CREAT | os.O_EXCL))


def test_a_lock_that_is_held_forever_delays_only_its_own_entry(mount, two_jobs):
    one, two = (Builder(job) for job in two_jobs)
    other = Builder(two_jobs[1], "torch-extensions/py311_cpu/other",
                    "torch-extensions/py311_cpu/other/lock")
    one.lock()
    assert not two.try_lock() and other.try_lock()
    other.build("op.so")
    other.unlock()
    assert mount.base(other.entry, "op.so").exists()


def test_builders_of_two_mounts_exclude_each_other(mount_store, store, job_of):
    one, two = (Builder(job_of(mount_store(store), name, 20001 + number))
                for number, name in enumerate(("one", "two")))
    one.lock()
    assert not two.try_lock()
    one.build()
    one.unlock()
    assert two.try_lock()
    wait_until(lambda: two.job.exists(LIBRARY_OF_ONE), what="the other mount's library")
