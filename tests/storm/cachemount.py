# SPDX-License-Identifier: Apache-2.0
"""A cacheshim mount for the duration of a scenario."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from lab import MOUNT_POINT, Lab

COMMAND_TIMEOUT_S = 60


class CommandFailed(Exception):
    """A cacheshim command that should have succeeded has failed."""


def processes(name: str) -> dict[int, list[str]]:
    """Returns {pid: fields of /proc/PID/stat after the name} of the processes with this name in this PID namespace."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            head, _, tail = (entry / "stat").read_text().rpartition(")")
        except OSError:
            continue
        if head.partition("(")[2] == name:
            found[int(entry.name)] = tail.split()
    return found


def cpu_seconds_of(name: str) -> float:
    """Returns the user and system time of the processes with this name in this PID namespace."""
    ticks = sum(int(fields[11]) + int(fields[12]) for fields in processes(name).values())
    return ticks / os.sysconf("SC_CLK_TCK")


def is_mounted(path: Path) -> bool:
    """Reads the mount table, because stat() on the mount of a dead daemon fails."""
    with open("/proc/self/mounts") as table:
        return any(line.split(" ")[1] == str(path) for line in table)


class CacheMount:
    """Runs `cacheshim mount` on entry, and `cacheshim unmount` on exit.

    The mount point is /ci-cache itself, in this mount namespace only.
    """

    def __init__(self, lab: Lab, store: Path, mount_point: Path = MOUNT_POINT) -> None:
        self.lab = lab
        self.store = store
        self.mount_point = mount_point

    @property
    def base(self) -> Path:
        """Triton's directory in the base."""
        return self.store / "triton"

    def command(self, *words: str | Path, timeout: float = COMMAND_TIMEOUT_S) -> str:
        """Runs the program as root; returns its standard output."""
        line = [str(word) for word in (self.lab.cacheshim, *words)]
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise CommandFailed(f"{' '.join(line[1:])}: exit {done.returncode}: {said}")
        return done.stdout

    def mount(self) -> None:
        if not is_mounted(self.mount_point):  # `cacheshim mount` itself unmounts a dead mount
            self.mount_point.mkdir(exist_ok=True)
        # Not a pipe: the daemon may keep its end open, and reading the pipe would then block until the daemon exits.
        log = self.lab.fresh("daemon") / "log"
        with open(log, "wb") as output:
            done = subprocess.run(
                [self.lab.cacheshim, "mount", "--store", self.store, self.mount_point],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                timeout=COMMAND_TIMEOUT_S,
            )
        if done.returncode != 0 or not is_mounted(self.mount_point):
            said = log.read_text(errors="replace").strip()[-500:]
            raise CommandFailed(f"mount: exit {done.returncode}: {said}")

    def unmount(self) -> None:
        self.command("unmount", self.mount_point)
        if is_mounted(self.mount_point):
            raise CommandFailed("unmount: exit 0, but it is still mounted")

    def force_away(self) -> None:
        """Removes the mount and the daemon, whatever state they are in."""
        while is_mounted(self.mount_point):
            if subprocess.run(["umount", "-l", self.mount_point], check=False).returncode:
                break
        for pid in processes("cacheshim"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def __enter__(self) -> CacheMount:
        try:
            self.mount()
        except BaseException:
            self.force_away()
            raise
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.unmount()
        finally:
            self.force_away()

    def end_job(self, name: str) -> None:
        self.command("job", "end", name, "--success", "--mount", self.mount_point)

    def stats(self) -> dict[str, int]:
        counters: dict[str, int] = json.loads(
            self.command("stats", "--json", "--mount", self.mount_point)
        )
        return counters

    def daemon_cpu(self) -> float:
        return cpu_seconds_of("cacheshim")
