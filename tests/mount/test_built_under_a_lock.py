# SPDX-License-Identifier: Apache-2.0
"""What a compiler writes in place while its caller has a lock file locked (a profile's built_under):
published when that is unlocked, so that who waits for the lock finds it."""

import fcntl
import os

import pytest
from jobs import wait_until

LOCK = "inductor/locks/cab.lock"
LIBRARY = "inductor/ab/cab.main.so"
WRITE = os.O_WRONLY | os.O_CREAT


@pytest.fixture
def build(mount, two_jobs):
    """Two jobs that want the same library; the first has its lock, the second waits for it."""
    locks = []
    for job in two_jobs:
        for folder in ("inductor/locks", "inductor/ab"):
            job("os.makedirs", job.path(folder), exist_ok=True)
        locks.append(job("os.open", job.path(LOCK), os.O_RDWR | os.O_CREAT))
    one, two = two_jobs
    one("fcntl.flock", locks[0], fcntl.LOCK_EX)
    assert not one.exists(LIBRARY) and not two.exists(LIBRARY)
    before = mount.stats()["lock_waits"]
    two.start("fcntl.flock", locks[1], fcntl.LOCK_EX)
    wait_until(lambda: mount.stats()["lock_waits"] > before, what="the wait")
    return one, two, locks[0]


def test_who_waits_for_the_lock_finds_it(mount, build):
    one, two, lock = build
    one.write(LIBRARY, b"built")
    assert not mount.base(LIBRARY).exists()
    one("fcntl.flock", lock, fcntl.LOCK_UN)
    two.result()
    assert two.read(LIBRARY) == mount.base(LIBRARY).read_bytes() == b"built"
    assert mount.layer_files("two") == {}


def locked_by_record(build):
    """The same, by a record lock of the first on a descriptor of it; the other wants nothing."""
    one, two, lock = build
    one("fcntl.flock", lock, fcntl.LOCK_UN)
    two.result()
    file = one("os.open", one.path(LOCK), os.O_RDWR)
    one("set_record", file)
    return one, two, file


def test_a_holders_death_tells_nothing(mount, build):
    one, two, _ = build
    one.write(LIBRARY, b"half")
    one.kill()
    two.result()
    assert not two.exists(LIBRARY) and not mount.base(LIBRARY).exists()
    two.write(LIBRARY, b"built")
    assert mount.stats()["entries_published"] == 0


def test_what_a_dead_holder_has_made_is_not_its_jobs_next_holders(mount, build, job_of):
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


def test_what_was_made_before_a_close_without_an_unlock_is_not_the_next_holders(mount, build):
    one, two, file = locked_by_record(build)
    one.write(LIBRARY, b"half")
    one("os.close", file)
    file = one("os.open", one.path(LOCK), os.O_RDWR)
    one("set_record", file)
    one("set_record", file, kind=fcntl.F_UNLCK)
    assert not mount.base(LIBRARY).exists()


def test_an_unlock_of_who_has_no_lock_tells_nothing(mount, build, job_of):
    one, _, _ = build
    other = job_of(mount, "one", 20001)
    idle = other("os.open", other.path(LOCK), os.O_RDWR)
    one.write(LIBRARY, b"half")
    other("fcntl.flock", idle, fcntl.LOCK_UN)
    assert not mount.base(LIBRARY).exists()


def test_another_lock_tells_nothing(mount, build):
    one, _, _ = build
    one.write(LIBRARY, b"half")
    for name in ("inductor/locks/ca.lock", "inductor/locks/cab.main.so.lock"):
        other = one("os.open", one.path(name), os.O_RDWR | os.O_CREAT)
        one("fcntl.flock", other, fcntl.LOCK_EX)
        one("fcntl.flock", other, fcntl.LOCK_UN)
        assert not mount.base(LIBRARY).exists(), name


def test_what_is_still_open_waits_for_the_jobs_success(mount, build):
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


def test_a_library_that_is_renamed_into_place_is_one_too(mount, build):
    """Some linkers write beside it."""
    one, two, lock = build
    one.write(LIBRARY + ".12", b"built")
    one("os.rename", one.path(LIBRARY + ".12"), one.path(LIBRARY))
    assert not mount.base(LIBRARY).exists()
    one("fcntl.flock", lock, fcntl.LOCK_UN)
    two.result()
    assert two.read(LIBRARY) == b"built"


def test_record_locks_count_too(mount, build):
    one, two, file = locked_by_record(build)
    one.write(LIBRARY, b"built")
    one("set_record", file, kind=fcntl.F_UNLCK)
    assert two.read(LIBRARY) == b"built"


def test_a_job_that_publishes_at_its_end_keeps_it(mount, job_of):
    quiet = job_of(mount, "quiet", 20003, env={"CACHESHIM_PUBLISH": "end"})
    for folder in ("inductor/locks", "inductor/ab"):
        quiet("os.makedirs", quiet.path(folder), exist_ok=True)
    lock = quiet("os.open", quiet.path(LOCK), os.O_RDWR | os.O_CREAT)
    quiet("fcntl.flock", lock, fcntl.LOCK_EX)
    quiet.write(LIBRARY, b"built")
    quiet("fcntl.flock", lock, fcntl.LOCK_UN)
    assert quiet.read(LIBRARY) == b"built" and not mount.base(LIBRARY).exists()


def test_only_the_end_of_an_exclusive_lock_counts(mount, job_of):
    one = job_of(mount, "one", 20001)
    for folder in ("inductor/locks", "inductor/ab"):
        one("os.makedirs", one.path(folder), exist_ok=True)
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
