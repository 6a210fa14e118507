# SPDX-License-Identifier: Apache-2.0
"""Starts jobs as other users, in namespaces and containers, and collects their reports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from lab import Lab

FIRST_UID = 23001  # jobs have uids from this one on; an ordinary machine has no users with these uids
READY_TIMEOUT_S = 120.0

Command = Sequence["str | Path"]


class Box(Enum):
    """The namespaces and directories that a job does not share with others."""

    PLAIN = "nothing"
    PIDS = "a PID namespace: every job's process has pid 1"
    CONTAINER = "mount and PID namespaces, a root file system and HOME=/root"
    CONTAINER_AS_ROOT = "the same and a user namespace in which it is root"


@dataclass
class Job:
    """A command and the user, the variables and the namespaces with which it runs. `environment` is added to the
    variables that every job has, such as PATH, HOME and TMPDIR."""

    name: str
    uid: int
    command: Command
    environment: dict[str, str] = field(default_factory=dict)
    box: Box = Box.PIDS
    cache: Path | None = None  # bound to /ci-cache in a container
    enter: Sequence[str] = ()  # the words that run a command on the job's machine (Machine.enter())


@dataclass
class Result:
    """The exit status and the output of a job. If the job hung, crashed or was killed, `trouble` describes that, and
    `report` may be None."""

    job: Job
    status: int
    report: dict[str, Any] | None
    stderr: str
    trouble: str = ""

    @property
    def errors(self) -> list[dict[str, Any]]:
        return list(self.report["errors"]) if self.report else []

    @property
    def shim_lines(self) -> list[str]:
        """Returns the library's messages on stderr. The library prints none if nothing is wrong."""
        return [line for line in self.stderr.splitlines() if line.startswith("cacheshim")]


def command_line(lab: Lab, job: Job, home: Path, temporary: Path) -> list[str]:
    """Returns the words that run a job's command in its namespaces. `env` sets the job's variables last, so that the
    programs before it, such as unshare, do not have them."""
    in_container = job.box in (Box.CONTAINER, Box.CONTAINER_AS_ROOT)
    variables = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/root" if in_container else str(home),
        "TMPDIR": "/tmp" if in_container else str(temporary),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_DEFAULT_FP_FUSION": "1",  # avoids a warning of Triton 3.9
        **job.environment,
    }
    words: list[str | Path] = [
        "env",
        "-i",
        *(f"{k}={v}" for k, v in variables.items()),
        *job.command,
    ]
    identity = ["setpriv", "--reuid", str(job.uid), "--regid", str(job.uid), "--clear-groups", "--"]
    if job.box is Box.PLAIN:
        prefix: list[str | Path] = [*identity]
    elif job.box is Box.PIDS:
        prefix = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *identity]
    else:
        prefix = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--"]
        prefix += [lab.stage / "container.sh", "--root", lab.area / "rootfs", "--home", home]
        prefix += ["--share", lab.share, "--uid", str(job.uid)]
        prefix += ["--cache", job.cache] if job.cache else []
        prefix += ["--userns"] if job.box is Box.CONTAINER_AS_ROOT else []
        prefix += ["--"]
    return [str(word) for word in [*job.enter, *prefix, *words]]


class Running:
    """A running job."""

    def __init__(self, lab: Lab, job: Job) -> None:
        self.job = job
        self.calls = 0
        self._report: dict[str, Any] | None = None
        self._ready = threading.Event()
        home = lab.fresh(f"home-{job.name}")
        temporary = home / "tmp"
        temporary.mkdir()
        for directory in (home, temporary):
            os.chown(directory, job.uid, job.uid)
        self._stderr_path = lab.fresh(f"log-{job.name}") / "stderr"
        with open(self._stderr_path, "wb") as stderr:
            self._process = subprocess.Popen(
                command_line(lab, job, home, temporary),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd="/",
                umask=0o022,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line == "READY\n":
                self._ready.set()
            elif line == "CALL\n":
                self.calls += 1
            elif line.startswith("REPORT "):
                self._report = json.loads(line[7:])
        self._ready.set()  # the job has exited, so wait_ready() must not wait for it

    def wait_ready(self) -> None:
        self._ready.wait(READY_TIMEOUT_S)

    def go(self) -> None:
        self._write("\n")

    def _write(self, text: str) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the job has exited; finish() reports the reason

    def end_input(self) -> None:
        """Closes the job's stdin, which makes readers and cleaners exit."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        """Sends SIGKILL to the first process of the job's PID namespace, which ends all processes there, and to
        unshare.

        unshare's --kill-child does not suffice, because the kernel drops that setting when the child changes its uid.
        """
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                os.kill(int(child), signal.SIGKILL)
        self._process.kill()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def finish(self, timeout: float) -> Result:
        trouble = ""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            trouble = f"not finished after {timeout:.0f} s"
            self.kill()
            self._process.wait()
        self._reader.join(10)
        self.end_input()
        stderr = self._stderr_path.read_text(errors="replace")
        if not self._report and not trouble:
            last = stderr.strip().splitlines()[-1:] or [""]
            trouble = f"ended with status {self._process.returncode} and no report: {last[0][:300]}"
        return Result(self.job, self._process.returncode, self._report, stderr, trouble)


def start_all(lab: Lab, jobs: Sequence[Job]) -> list[Running]:
    """Starts jobs. Returns once each job has printed READY (after importing its modules), has exited, or has done
    neither within READY_TIMEOUT_S."""
    running = [Running(lab, job) for job in jobs]
    for one in running:
        one.wait_ready()
    return running


def go_all(running: Sequence[Running]) -> None:
    for one in running:
        one.go()


def watch(lab: Lab, running: Sequence[Running], what: str, timeout: float) -> float:
    """Waits at most `timeout` seconds until all jobs have exited, and prints their progress; returns the seconds
    waited."""
    start = time.monotonic()
    while any(one.running for one in running) and time.monotonic() - start < timeout:
        lab.progress.tick(f"{what}: {sum(one.calls for one in running)} calls done")
        time.sleep(0.02)
    return time.monotonic() - start


@dataclass
class Storm:
    """The results of a pass of several jobs."""

    results: list[Result]
    wall: float

    @property
    def calls(self) -> int:
        return sum(one.report["calls"] for one in self.results if one.report)

    @property
    def hits(self) -> int:
        return sum(one.report["hits"] for one in self.results if one.report)

    @property
    def cpu(self) -> float:
        return float(sum(one.report["cpu"] for one in self.results if one.report))

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [error for one in self.results for error in one.errors]

    def complaints(self) -> list[str]:
        """Returns a line for each thing that must not occur in a pass through cacheshim: a job without a report, an
        error, or a message of the library."""
        lines = []
        for one in self.results:
            name = one.job.name
            if one.trouble:
                lines.append(f"{name}: {one.trouble}")
            for error in one.errors[:4]:
                where = f" {error['path']}" if error["path"] else f" {error['message']}"
                lines.append(f"{name}: {error['type']} (errno {error['errno']}){where}")
            if len(one.errors) > 4:
                lines.append(f"{name}: … {len(one.errors)} errors in all")
            lines += [f"{name}: the library said: {line}" for line in one.shim_lines[:3]]
        return lines


def storm(lab: Lab, jobs: Sequence[Job], what: str, timeout: float = 180.0) -> Storm:
    """Runs jobs, which begin their work at the same time, and returns their results."""
    lab.progress.tick(f"{what}: starting {len(jobs)} jobs")
    running = start_all(lab, jobs)
    go_all(running)
    wall = watch(lab, running, what, timeout)
    return Storm([one.finish(max(0.1, timeout - wall)) for one in running], wall)
