# SPDX-License-Identifier: Apache-2.0
"""Runs several users of one family at once, each in its own process group."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import time

import jobs
from family import BUILDS, Family, MountedPlace, NativePlace

FIRST_UID = 21000
START_TIMEOUT_S = 120
STEPS_TIMEOUT_S = 240  # a user that takes longer counts as hung; most take seconds


class UserHung(AssertionError):
    """A user did not finish in time."""


@dataclasses.dataclass
class Report:
    right: list[str]
    hits: list[str]
    errors: dict[str, str]


class User:
    """One user's process, with its cache in `place`."""

    def __init__(self, family: Family, place: NativePlace | MountedPlace, home: pathlib.Path,
                 number: int, builds: pathlib.Path, extra: dict[str, str]):
        self.job = f"user{number}"
        uid = FIRST_UID + number
        home.mkdir(exist_ok=True)
        os.chown(home, uid, uid)
        own = {name: str(builds) if value == BUILDS else value
               for name, value in family.environment.items()}
        env = {**own, **place.environment(family, self.job), **extra, "HOME": str(home),
               "TMPDIR": str(home),  # a killed process leaves its temporary files there
               "FAMILY_BUILDS": str(builds), "PYTHONDONTWRITEBYTECODE": "1"}
        self._errors = open(home / "stderr", "w+", encoding="utf-8")
        self._child = subprocess.Popen(
            [family.python, family.directory / "user.py"], cwd=home, user=uid, group=uid,
            extra_groups=[], umask=0o022, env=jobs.environment(extra=env), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, text=True, process_group=0)

    def await_ready(self) -> None:
        self._line("READY", START_TIMEOUT_S)

    def start(self) -> None:
        assert self._child.stdin
        self._child.stdin.write("\n")
        self._child.stdin.flush()

    def report(self) -> Report:
        return Report(**json.loads(self._line("REPORT ", STEPS_TIMEOUT_S)))

    def end(self) -> None:
        assert self._child.stdin
        self._child.stdin.close()
        self._child.wait(30)

    def kill(self) -> None:
        """Kills the user's process group: the process and its children."""
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._child.wait(30)
        self._errors.close()

    def _line(self, beginning: str, seconds: float) -> str:
        assert self._child.stdout
        deadline = time.monotonic() + seconds
        while select.select([self._child.stdout], [], [], deadline - time.monotonic())[0]:
            line = self._child.stdout.readline()
            if line.startswith(beginning):
                return line.removeprefix(beginning)
            if not line:
                self._errors.seek(0)
                raise AssertionError(f"{self.job} ended without {beginning.strip()}: "
                                     f"{self._errors.read()[-3000:]}")
        raise UserHung(f"{self.job} did not come to {beginning.strip()} in {seconds} s")


class Crowd:
    """The users of one family in one place, and the log of their builds."""

    def __init__(self, family: Family, place: NativePlace | MountedPlace, scratch: pathlib.Path,
                 extra: dict[str, str], first: int = 1):
        self._family, self._place, self._scratch, self._extra = family, place, scratch, extra
        self._first = first  # the first user's number; a user's number determines its uid and its job's name
        self._users: list[User] = []
        self.builds_log = scratch / "builds"
        self.builds_log.touch()
        self.builds_log.chmod(0o666)

    def builds(self) -> int:
        return len(self.builds_log.read_text().splitlines())

    def add(self, count: int, fails: bool = False) -> list[User]:
        """Starts `count` users, and returns when all have printed READY; they wait for User.start()."""
        extra = {**self._extra, **({"FAMILY_FAILS": "1"} if fails else {})}
        new = []
        for _ in range(count):
            number = self._first + len(self._users)
            user = User(self._family, self._place, self._scratch / f"home{number}", number,
                        self.builds_log, extra)
            self._users.append(user)
            new.append(user)
        for user in new:
            user.await_ready()
        return new

    def run(self, count: int, fails: bool = False) -> list[Report]:
        """Runs `count` users at once, and then ends their jobs as successful; returns their reports."""
        users = self.add(count, fails)
        for user in users:
            user.start()
        reports = [user.report() for user in users]
        for user in users:
            user.end()
            self._place.end_job(user.job)
        return reports

    def flight_timeouts(self) -> int:
        return self._place.flight_timeouts()

    def rejections(self) -> int:
        return self._place.rejections()

    def close(self) -> None:
        for user in self._users:
            user.kill()
