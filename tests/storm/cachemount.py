# SPDX-License-Identifier: Apache-2.0
"""A cacheshim mount for the duration of a scenario."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
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


class Machine:
    """A mount namespace that stands for a machine: it has its own /ci-cache and /run, and with `has_network` its own
    network namespace. The processes of all machines see the same disk."""

    def __init__(self, name: str, has_network: bool = False) -> None:
        self.name = name
        self._namespaces = ["--mount", *(["--net"] if has_network else [])]
        script = "mount -t tmpfs -o mode=0755 tmpfs /run && echo && exec sleep infinity"
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", "unshare", *self._namespaces, "--propagation", "private"]
            + ["--", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout and self._holder.stdout.readline() == b"\n"
        self.proc = Path(f"/proc/{self._holder.pid}")

    def enter(self) -> list[str]:
        """Returns the words that precede a command to run it on the machine."""
        return ["nsenter", f"--target={self.proc.name}", *self._namespaces, "--wd=/", "--"]

    def has(self, pid: int) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink(self.proc / "ns/mnt")
        except OSError:
            return False

    def end(self) -> None:
        self._holder.kill()
        self._holder.wait()


class CacheMount:
    """Runs `cacheshim mount` on entry, and `cacheshim unmount` on exit.

    The default mount point is /ci-cache itself. The mount is visible only in the mount namespace of `machine`; without
    `machine`, only in this one.
    """

    def __init__(
        self,
        lab: Lab,
        store: Path,
        mount_point: Path = MOUNT_POINT,
        machine: Machine | None = None,
        options: Sequence[str | Path] = (),
    ) -> None:
        self.lab = lab
        self.store = store
        self.mount_point = mount_point
        self.machine = machine
        self.options = options
        self._enter = machine.enter() if machine else []
        self._mounts = (machine.proc if machine else Path("/proc/self")) / "mounts"

    def is_mounted(self) -> bool:
        """Reads the mount table, because stat() on the mount of a dead daemon fails."""
        with open(self._mounts) as table:
            return any(line.split(" ")[1] == str(self.mount_point) for line in table)

    @property
    def base(self) -> Path:
        """Triton's directory in the base."""
        return self.store / "triton"

    def command(self, *words: str | Path, timeout: float = COMMAND_TIMEOUT_S) -> str:
        """Runs the program as root; returns its standard output."""
        line = [str(word) for word in (*self._enter, self.lab.cacheshim, *words)]
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise CommandFailed(f"{' '.join(line[1:])}: exit {done.returncode}: {said}")
        return done.stdout

    def mount(self) -> None:
        if not self.is_mounted():  # `cacheshim mount` itself unmounts a dead mount
            self.mount_point.mkdir(exist_ok=True)
        # Not a pipe: the daemon may keep its end open, and reading the pipe would then block until the daemon exits.
        log = self.lab.fresh("daemon") / "log"
        with open(log, "wb") as output:
            done = subprocess.run(
                [*self._enter, self.lab.cacheshim, "mount", "--store", self.store, *self.options, self.mount_point],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                timeout=COMMAND_TIMEOUT_S,
            )
        if done.returncode != 0 or not self.is_mounted():
            said = log.read_text(errors="replace").strip()[-500:]
            raise CommandFailed(f"mount: exit {done.returncode}: {said}")

    def unmount(self) -> None:
        self.command("unmount", self.mount_point)
        if self.is_mounted():
            raise CommandFailed("unmount: exit 0, but it is still mounted")

    def force_away(self) -> None:
        """Removes the mount and the daemon, whatever state they are in."""
        while self.is_mounted():
            if subprocess.run([*self._enter, "umount", "-l", self.mount_point], check=False).returncode:
                break
        for pid in processes("cacheshim"):
            if self.machine and not self.machine.has(pid):
                continue
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
