# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of direct answers. The daemon counts each job's direct answers; the tests read these counters
to verify that answers were direct."""

import contextlib
import errno
import shutil

import mounts
from jobs import wait_until

UID = 20001
KEY = "triton/KEY"


def warm(mount, process):
    """Begins the process's job by a lookup, so that its shadow filter exists; verifies that later lookups are answered
    directly. Returns the process."""
    process.exists("none")
    before = mount.job(process.job)["direct_looks"]
    for _ in range(40):
        process.exists("none/of/these")
    assert mount.job(process.job)["direct_looks"] > before
    return process


class Count:
    """Counts the direct answers of a job within a `with` block."""

    def __init__(self, mount, job="j"):
        self._mount, self._job = mount, job

    def __enter__(self):
        self._before = self._mount.job(self._job)
        return self

    def __exit__(self, *_):
        after = self._mount.job(self._job)
        self.opens = after["direct_opens"] - self._before["direct_opens"]
        self.looks = after["direct_looks"] - self._before["direct_looks"]


def opens_as_the_views_directory(process, path):
    """Returns true if the process opens the path as the view's directory, in which it can create a name; false if it
    opens the base's directory or a file."""
    fd = process("hold", path)
    try:
        process("os.mkdir", "mine", dir_fd=fd)
        return True
    except OSError as error:
        assert error.errno in (errno.EROFS, errno.ENOTDIR), error
        return False
    finally:
        process("release", fd)


class Turns:
    """Starts processes with turns.cc preloaded after the library, so that a test can hold their calls and advance their
    clocks."""

    def __init__(self, mount, scratch, shimmed_job_of):
        self.mount, self.directory = mount, scratch / "turns"
        self._start = shimmed_job_of
        self.directory.mkdir()
        self.directory.chmod(0o777)
        built = mounts.REPOSITORY / "build/tests/mount/libturns.so"
        self._env = {"LD_PRELOAD": f"{scratch}/libcacheshim.so:{shutil.copy(built, scratch)}",
                     "TURNS": str(self.directory)}

    def job(self, name, uid):
        return self._start(self.mount, name, uid, env=self._env)

    def be_late(self, seconds):
        (self.directory / "late").unlink(missing_ok=True)
        (self.directory / "late").symlink_to(str(seconds))

    @contextlib.contextmanager
    def held(self, process, moment, name, *call):
        """Makes `process` start the call, and holds it until the block ends: before or after its open of `name`, as
        `moment` ("before" or "after") says."""
        (self.directory / moment).symlink_to(name)
        process.start(*call)
        held = self.directory / "held"
        wait_until(held.is_symlink, what=f"an open of {name}")
        try:
            yield
        finally:
            held.unlink()


class Race:
    """A process of job j changes one name after another, while two processes with direct answers check the changes
    (agent_races.py)."""

    CHECKERS = 2

    def __init__(self, mount, scratch, job_of, shimmed_job_of):
        self._board = scratch / "board"
        self._board.write_bytes(bytes(8 * (1 + self.CHECKERS)))
        self._board.chmod(0o666)
        self._writer = job_of(mount, "j", UID)
        self._checkers = [warm(mount, shimmed_job_of(mount, "j", UID)) for _ in range(self.CHECKERS)]

    def run(self, change, check, top, count, kinds):
        """Runs the writer and the checkers; asserts that each checker made checks of all `kinds`, and found no
        error."""
        path = self._writer.path(top)
        for number, checker in enumerate(self._checkers):
            checker.start(check, path, count, str(self._board), number)
        self._writer(change, path, count, str(self._board))
        for checker in self._checkers:
            checks, wrong = checker.result()
            assert not wrong, wrong[:10]
            assert set(checks) == kinds
