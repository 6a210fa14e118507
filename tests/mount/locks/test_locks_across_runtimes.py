# SPDX-License-Identifier: Apache-2.0
"""PyPI's filelock, the C++ FileLock and `cacheshim lock` exclude each other, in views and on the bare store."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import mounts
import pytest
from jobs import wait_until

filelock = pytest.importorskip("filelock")

CACHE = os.environ.get("CACHESHIM_RUNTIME_CACHE",
                       str(mounts.REPOSITORY / "build/tests/locks/runtime_cache"))
FAMILY = "tensorrt-rtx/app"
ADD = """
import filelock, os, sys
path, rounds, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for number in range(rounds):
    with filelock.FileLock(path + ".lock"):
        lines = set(open(path).read().split()) if os.path.exists(path) else set()
        staged = f"{path}.new.{os.getpid()}"
        with open(staged, "w") as file:
            file.write("".join(line + "\\n" for line in sorted(lines | {f"{name}-{number}"})))
        os.rename(staged, path)
"""


def environment(job, shimmed=False):
    env = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
    env["CACHESHIM_JOB"] = job
    if shimmed:
        env["LD_PRELOAD"] = mounts.LIBRARY
    return env


def start(job, *argv, **options):
    return subprocess.Popen([str(word) for word in argv], env=environment(job, **options),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def run(job, *argv, **options):
    process = start(job, *argv, **options)
    output = process.communicate(timeout=60)
    return subprocess.CompletedProcess(argv, process.returncode, *output)


@pytest.fixture
def cache(mount):
    """The path of a runtime cache below the mount; its directory exists in both jobs."""
    path = mount.path / FAMILY / "kernels.cache"
    for job in ("one", "two"):
        assert run(job, "mkdir", "-p", path.parent).returncode == 0
    return path


@pytest.mark.parametrize("where", ["view", "base"])
def test_python_holds_and_the_save_of_cpp_times_out(mount, cache, where):
    assert run("one", CACHE, "save", cache, 0, "first").returncode == 0
    before = mount.base(FAMILY, "kernels.cache").read_bytes()
    lock = cache if where == "view" else mount.base(FAMILY, "kernels.cache")
    with filelock.FileLock(f"{lock}.lock"):
        refused = run("two", CACHE, "save", cache, 100, "second")
        assert refused.returncode == 75 and "others have it locked" in refused.stderr
        assert mount.base(FAMILY, "kernels.cache").read_bytes() == before
    assert run("two", CACHE, "save", cache, 0, "second").returncode == 0
    assert run("one", CACHE, "load", cache).stdout == "first\nsecond\n"


@pytest.mark.parametrize("where", ["view", "base"])
def test_cpp_holds_and_python_times_out(mount, cache, where):
    ready = mount.path.with_name("ready")
    held = f"{cache}.lock" if where == "view" else mount.base(FAMILY, "kernels.cache.lock")
    if where == "base":
        run("one", "touch", f"{cache}.lock")
    holder = start("one", mounts.PROGRAM, "lock", held, "--", "sh", "-c",
                   f"touch {ready}; exec sleep 600")
    wait_until(ready.exists, what="the lock")
    with pytest.raises(filelock.Timeout):
        filelock.FileLock(f"{cache}.lock").acquire(timeout=0.2)
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(20) == 143
    filelock.FileLock(f"{cache}.lock").acquire(timeout=10)


@pytest.mark.timeout_s(300)
@pytest.mark.parametrize("shimmed", [False, True], ids=["plain", "shimmed"])
def test_no_update_is_lost_between_two_views_and_the_bare_store(mount, cache, shimmed):
    rounds = 200
    raw = mount.base(FAMILY, "kernels.cache")
    # The raw writer needs this directory. The first lock in a view also creates it, but possibly too late.
    raw.parent.mkdir(parents=True, exist_ok=True)
    writers = [start("one", sys.executable, "-c", ADD, cache, rounds, "python", shimmed=shimmed),
               start("two", CACHE, "add", cache, rounds, "cpp", shimmed=shimmed),
               start("raw", CACHE, "add", raw, rounds, "raw")]
    for writer in writers:
        _, errors = writer.communicate(timeout=250)
        assert writer.returncode == 0, errors
    expected = {f"{name}-{number}" for name in ("python", "cpp", "raw") for number in range(rounds)}
    assert set(raw.read_text().split()) == expected
    assert set(run("three", CACHE, "load", cache).stdout.split()) == expected


def test_cacheshim_lock_runs_the_command_as_flock_does(mount, cache):
    lock = f"{cache}.lock"
    def locked(*argv):
        return run("one", mounts.PROGRAM, "lock", *argv)
    assert locked(lock, "--", "sh", "-c", "exit 7").returncode == 7
    assert locked(lock, "sh", "-c", "kill -9 $$").returncode == 137
    assert locked(lock, "--", "no-such-command").returncode == 127
    assert locked(lock).returncode == 2
    assert locked("--timeout", "0", lock, "--", "flock", "-n", lock, "true").returncode == 1
    inner = (mounts.PROGRAM, "lock", "--timeout", "0.1")
    refused = locked(lock, "--", *inner, lock, "true")
    assert refused.returncode == 75 and "others have it locked" in refused.stderr
    assert locked("--shared", lock, "--", *inner, "--shared", lock, "true").returncode == 0
    assert locked(cache.parent, "--", "true").returncode == 0  # locks a directory
    missing = locked(cache.parent / "none/lock", "--", "true")
    assert missing.returncode == 1 and "cannot open lock file" in missing.stderr
    assert os.path.exists(lock)


def test_background_processes_of_the_command_keep_the_lock(mount, cache):
    ready = mount.path.with_name("ready")
    result = run("one", mounts.PROGRAM, "lock", f"{cache}.lock", "--", "sh", "-c",
                 f"sleep 600 >/dev/null 2>&1 & echo $! > {ready}")
    assert result.returncode == 0
    assert run("one", "flock", "-n", f"{cache}.lock", "true").returncode == 1
    os.kill(int(ready.read_text()), signal.SIGKILL)
    wait_until(lambda: run("one", "flock", "-n", f"{cache}.lock", "true").returncode == 0,
               what="the lock")


KILLED = """
import fcntl, os, sys
path, note, kind = sys.argv[1:]
lock = fcntl.flock if kind == "flock" else fcntl.lockf
# A record lock on a file outside the mount. When a process is killed, the kernel closes its descriptors in ascending
# order, so it releases this lock before the one under test.
held = os.open(note + ".held", os.O_CREAT | os.O_RDWR, 0o644)
while True:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    lock(fd, fcntl.LOCK_EX)
    inside = os.open(note, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    try:  # nobody else is inside
        fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(inside, b"broken\\n")
    os.write(inside, b"once\\n")
    os.close(inside)
    fcntl.lockf(held, fcntl.LOCK_UN)
    os.close(fd)
"""


def is_free(job, path, kind):
    code = (f"import fcntl\nfcntl.{'flock' if kind == 'flock' else 'lockf'}"
            f"(open({str(path)!r}, 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)")
    return run(job, sys.executable, "-S", "-c", code).returncode == 0


def kill_at_random(mount, rounds, kind, workers=6):
    """Kills holders and waiters of a lock at random times, in two jobs and outside the mount. Asserts that no two
    processes held the lock at the same time, and that it is free in the end. Returns how often a process held it."""
    cache = mount.path / FAMILY / "kernels.cache"
    assert run("one", "mkdir", "-p", cache.parent).returncode == 0
    assert run("two", "mkdir", "-p", cache.parent).returncode == 0
    note = mount.path.with_name("note")
    raw = mount.base(FAMILY, "kernels.cache.lock")
    run("one", "touch", f"{cache}.lock")
    places = [("one", f"{cache}.lock"), ("two", f"{cache}.lock"), ("raw", raw)]

    def begin(number):
        job, path = places[number % len(places)]
        return start(job, sys.executable, "-S", "-c", KILLED, path, note, kind)

    processes = [begin(number) for number in range(workers)]
    try:
        for _ in range(rounds):
            number = random.randrange(workers)
            time.sleep(random.random() * 0.03)  # so that the process may be killed at any point
            processes[number].kill()
            processes[number].communicate()
            processes[number] = begin(number)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    for job, path in places:  # the kernel reports the close only after the process has exited
        wait_until(lambda job=job, path=path: is_free(job, path, kind), what=f"the lock of {job}")
    lines = note.read_text().split()
    assert "broken" not in lines
    print(f"{rounds} killed, {lines.count('once')} times one was inside")
    return lines.count("once")


KINDS = pytest.mark.parametrize("kind", ["flock", "records"])


@KINDS
@pytest.mark.timeout_s(300)
def test_kill_9_at_random_breaks_no_lock_and_leaves_none(mount, kind):
    assert kill_at_random(mount, 60, kind) > 60


@KINDS
@pytest.mark.long
@pytest.mark.timeout_s(900)
def test_kill_9_at_random_a_thousand_times(mount, kind):
    assert kill_at_random(mount, 1000, kind) > 1000
