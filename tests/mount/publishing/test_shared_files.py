# SPDX-License-Identifier: Apache-2.0
"""Files of class `shared`: a close replaces the base's file as a whole."""

import errno
import os
import signal
import subprocess
import sys

import mounts
import pytest
from jobs import wait_until

NAME = "tensorrt-rtx/app/kernels.cache"
OLD, NEW = b"o" * 300_000, b"N" * 300_000


@pytest.fixture
def both(mount_store, store, job_of):
    path = store / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(OLD)
    mount = mount_store(store)
    return mount, *(job_of(mount, job, uid) for job, uid in (("one", 20001), ("two", 20002)))


def open_in(job, flags=os.O_RDWR, name=NAME):
    return job("os.open", job.path(name), flags, 0o644)


def staged(mount):
    return list(mount.store.glob(".cacheshim/staging/*/shared-*"))


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY, os.O_WRONLY | os.O_TRUNC,
                                   os.O_RDWR | os.O_CREAT])
def test_in_place_writes_are_seen_by_others_at_close(both, flags):
    mount, one, two = both
    reader = open_in(two, os.O_RDONLY)
    fd = open_in(one, flags)
    for at in range(0, len(NEW), 100_000):
        one("os.pwrite", fd, NEW[at:at + 100_000], at)
        assert mount.base(NAME).read_bytes() == two.read(NAME) == OLD
    one("os.close", fd)
    assert mount.base(NAME).read_bytes() == two.read(NAME) == one.read(NAME) == NEW
    assert two("os.stat", two.path(NAME)).st_size == len(NEW)
    # An open descriptor still refers to the old file.
    assert two("os.pread", reader, len(OLD), 0) == OLD
    assert mount.base(NAME).stat().st_mode & 0o777 == 0o644
    assert staged(mount) == [] and mount.layer_files("one") == {}


def test_bytes_that_are_not_overwritten_stay(both):
    mount, one, two = both
    fd = open_in(one)
    one("os.pwrite", fd, b"new", 10)
    assert one("os.pread", fd, 6, 8) == b"oonewo"  # a writer sees its own writes immediately
    one("os.close", fd)
    assert two.read(NAME) == OLD[:10] + b"new" + OLD[13:]


def test_each_close_of_a_descriptor_puts_in_place_what_was_written_until_then(both):
    mount, one, two = both
    fd = open_in(one)
    one("os.pwrite", fd, b"first", 0)
    one("os.close", one("os.dup", fd))
    assert two.read(NAME)[:6] == b"firsto"
    held = open_in(two, os.O_RDONLY)
    one("os.pwrite", fd, b"again", 0)
    for job, own in ((one, fd), (two, held)):  # opened before and after the replacement of the file
        assert job("os.fstat", own).st_size == len(OLD)
    assert two.read(NAME)[:5] == two("os.pread", held, 5, 0) == b"first"
    one("os.close", fd)
    assert two.read(NAME) == b"again" + OLD[5:]
    assert two("os.pread", held, 5, 0) == b"first"


def test_appending_goes_to_the_end_of_what_was_written(both):
    mount, one, two = both
    fd = open_in(one, os.O_WRONLY | os.O_APPEND)
    for piece in (b"one", b"two"):
        one("os.write", fd, piece)
        one("os.stat", one.path(NAME))  # makes the kernel cache the base's size again
    one("os.close", fd)
    assert two.read(NAME) == OLD + b"onetwo"


def test_truncating_is_atomic_too(both):
    mount, one, two = both
    reader = open_in(two, os.O_RDONLY)
    one("os.truncate", one.path(NAME), 5)
    assert mount.base(NAME).read_bytes() == two.read(NAME) == one.read(NAME) == OLD[:5]
    assert two("os.pread", reader, len(OLD), 0) == OLD
    fd = open_in(one)
    one("os.ftruncate", fd, 2)
    assert one("os.fstat", fd).st_size == 2  # a writer sees its own size
    assert two("os.stat", two.path(NAME)).st_size == 5 and two.read(NAME) == OLD[:5]
    one("os.close", fd)
    assert two.read(NAME) == OLD[:2]


def test_a_writer_that_is_killed_leaves_the_old_bytes(both, job_of):
    mount, one, two = both
    for _ in range(5):
        fd = open_in(one, os.O_WRONLY | os.O_TRUNC)
        one("os.write", fd, NEW[:100_000])
        before = len(staged(mount))
        assert before == 1
        one.kill()
        wait_until(lambda: staged(mount) == [], what="the end of its copy")
        assert two.read(NAME) == mount.base(NAME).read_bytes() == OLD
        one = job_of(mount, "one", 20001)


def test_a_killed_maker_leaves_no_empty_file(both, job_of):
    mount, one, two = both
    name = "tensorrt-rtx/app/new.cache"
    one("os.write", open_in(one, os.O_WRONLY | os.O_CREAT | os.O_EXCL, name), b"half")
    assert mount.base(name).read_bytes() == b""
    one.kill()
    wait_until(lambda: not mount.base(name).exists(), what="the removal")
    assert not two.exists(name)
    two("os.close", open_in(two, os.O_WRONLY | os.O_CREAT, name))  # as touch(1) does
    assert mount.base(name).read_bytes() == b""


def test_a_writer_that_exits_without_a_close_has_written(both):
    mount, one, two = both
    code = ("import os, sys, threading, time\n"
            "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)\n"
            "os.write(fd, b'whole')\n"
            "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
            "os._exit(3)")
    result = subprocess.run([sys.executable, "-S", "-c", code, one.path(NAME)], check=False,
                            env={**os.environ, "CACHESHIM_JOB": "one"})
    assert result.returncode == 3
    assert two.read(NAME) == b"whole"


def test_a_child_continues_the_write_of_its_killed_parent(both):
    mount, one, two = both
    code = ("import os, signal, sys\n"
            "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)\n"
            "os.write(fd, b'begun')\n"
            "ready, tell = os.pipe()\n"
            "if os.fork() == 0:\n"
            "    os.close(tell); os.read(ready, 1)\n"
            "    os.write(fd, b' and done'); os.close(fd); os.write(1, b'x'); os._exit(0)\n"
            "os.kill(os.getpid(), signal.SIGKILL)")
    process = subprocess.Popen([sys.executable, "-S", "-c", code, one.path(NAME)],
                               stdout=subprocess.PIPE, env={**os.environ, "CACHESHIM_JOB": "one"})
    assert process.stdout.read() == b"x"
    assert process.wait() == -signal.SIGKILL
    assert two.read(NAME) == b"begun and done"


def test_files_that_were_unlinked_or_replaced_meanwhile_stay_so(both):
    mount, one, two = both
    fd = open_in(one)
    one("os.pwrite", fd, b"late", 0)
    one("os.unlink", one.path(NAME))
    one("os.close", fd)
    assert not mount.base(NAME).exists()
    two.write(NAME, b"another's")
    fd = open_in(two)
    two("os.pwrite", fd, b"late", 0)
    two("os.unlink", two.path(NAME))
    two.write(NAME, b"made anew")
    two("os.close", fd)
    assert one.read(NAME) == b"made anew"
    assert staged(mount) == []


def test_the_file_of_the_last_writer_to_close_is_complete(both):
    mount, one, two = both
    fds = [open_in(job, os.O_WRONLY | os.O_TRUNC) for job in (one, two)]
    one("os.write", fds[0], b"of one, longer")
    two("os.write", fds[1], b"of two")
    two("os.close", fds[1])
    assert one.read(NAME) == b"of two"
    one("os.close", fds[0])
    assert one.read(NAME) == two.read(NAME) == b"of one, longer"


READ = """
import os, sys
path, seen = sys.argv[1], set()
print("ready", flush=True)
while not os.path.exists(path + ".stop"):
    with open(path, "rb") as file:
        data = file.read()
    if len(set(data)) != 1 or len(data) != 300_000:
        sys.exit(f"a mix: {len(data)} bytes of {sorted(set(data))}")
    seen.add(data[:1])
print(len(seen))
"""


OPEN_OFTEN = """
import errno, os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
path, opens, stale = sys.argv[1], 0, 0
while not os.path.exists(path + ".stop"):
    for _ in range(50):
        opens += 1
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.ESTALE, error
            stale += 1
print(opens, stale)
"""


def test_opening_a_repeatedly_replaced_file_succeeds(both):
    """Many readers run on one core, so the file is often replaced between their lookup and their open."""
    mount, one, two = both
    env = {**os.environ, "CACHESHIM_JOB": "two"}
    readers = [subprocess.Popen([sys.executable, "-S", "-c", OPEN_OFTEN, two.path(NAME)], text=True,
                                stdout=subprocess.PIPE, env=env) for _ in range(6)]
    for _ in range(200):
        fd = open_in(one, os.O_WRONLY | os.O_TRUNC)
        one("os.pwrite", fd, NEW, 0)
        one("os.close", fd)
    mount.base(NAME).with_name("kernels.cache.stop").touch()
    counts = [tuple(map(int, reader.communicate(timeout=30)[0].split())) for reader in readers]
    opens, stale = map(sum, zip(*counts))
    assert opens > 0 and stale == 0


@pytest.mark.parametrize("shimmed", [False, True], ids=["plain", "shimmed"])
def test_a_reader_never_sees_a_mix(both, shimmed, library):
    mount, one, two = both
    assert one.exists(NAME) and two.exists(NAME)  # begin the jobs as their users, because the readers run as root

    def environment(job):
        return {**os.environ, "CACHESHIM_JOB": job, "CACHESHIM_MOUNT": str(mount.path),
                **({"LD_PRELOAD": library} if shimmed else {})}
    raw = mount.base(NAME)
    readers = [subprocess.Popen([sys.executable, "-S", "-c", READ, str(path)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(job))
               for job, path in (("two", two.path(NAME)), ("one", one.path(NAME)), ("one", raw))]
    try:
        for reader in readers:
            assert reader.stdout.readline() == "ready\n"
        for number in range(100):
            fd = open_in(one, os.O_RDWR if number % 2 else os.O_WRONLY | os.O_TRUNC)
            for at in range(0, len(NEW), 50_000):
                one("os.pwrite", fd, bytes([65 + number % 26]) * 50_000, at)
            one("os.close", fd)
        (raw.parent / "kernels.cache.stop").touch()
        for reader in readers:
            output, errors = reader.communicate(timeout=30)
            assert reader.returncode == 0, errors
            assert int(output) > 1
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()


def test_a_full_disk_leaves_the_old_file(mount_store, scratch, job_of):
    """If there is no space for the copy, the writer gets an error, and the file is unchanged."""
    store = scratch / "small"
    store.mkdir()
    mounts.run("mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "small", store, check=True)
    path = store / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(OLD)
    mount = mount_store(store)
    one = job_of(mount, "one", 20001)
    fd = open_in(one)
    with pytest.raises(OSError) as refused:
        for at in range(0, 3_000_000, 100_000):
            one("os.pwrite", fd, NEW[:100_000], at)
    assert refused.value.errno == errno.ENOSPC
    one.kill()
    wait_until(lambda: staged(mount) == [], what="the end of its copy")
    assert path.read_bytes() == OLD
