# SPDX-License-Identifier: Apache-2.0
"""A systemd that runs only for a test, in its own namespaces (enter-systemd.sh)."""

import os
import pathlib
import shutil
import subprocess
import time

from jobs import wait_until
from mounts import run

SYSTEMD = pathlib.Path("/lib/systemd/systemd")
NO_CGROUPS = 77
_TARGETS = ("empty", "sysinit", "basic", "shutdown", "multi-user")
_KILL_TIMEOUT_S = 10


class NoCgroups(Exception):
    """The test can create no cgroup on this machine."""


class Systemd:
    """Runs the services in the directory `units`, and adds the targets that a service needs to that directory. Does not
    use the machine's own units."""

    def __init__(self, units, log):
        for name in _TARGETS:
            (units / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        self._group = f"cacheshim-test-{os.getpid()}"
        self._log = open(log, "w+", encoding="utf-8")
        self._child = subprocess.Popen(
            [pathlib.Path(__file__).with_name("enter-systemd.sh"), units, self._group],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        try:
            wait_until(self._answers, seconds=30, what="systemd's start")
        except BaseException:
            self.close()
            raise

    def _answers(self):
        if self._child.poll() == NO_CGROUPS:
            raise NoCgroups()
        if self._child.poll() is not None:
            self._log.seek(0)
            raise AssertionError(f"systemd has ended: {self._child.returncode}: {self._log.read()}")
        return self.pid is not None and self.path("/run/systemd/private").exists()

    @property
    def pid(self):
        """systemd's pid, or None if it has not started yet."""
        children = pathlib.Path(f"/proc/{self._child.pid}/task/{self._child.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def path(self, path):
        """Returns the path to a file in systemd's mount namespace."""
        return pathlib.Path(f"/proc/{self.pid}/root{path}")

    def run(self, *argv):
        """Runs a command in systemd's namespaces."""
        return run("nsenter", "-t", self.pid, "-m", "-p", "-C", "--", *argv)

    def property_of(self, unit, name):
        return self.run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()

    def main_pid(self, unit):
        """Returns the pid of a service's process in this process's PID namespace, or 0 if the service is not running."""
        inner = self.property_of(unit, "MainPID")
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                pids = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:")).split()[1:]
                same = os.readlink(status.parent / "ns/pid") == os.readlink(f"/proc/{self.pid}/ns/pid")
            except (OSError, StopIteration):
                continue  # the process has exited
            if same and pids[-1] == inner:
                return int(status.parent.name)
        return 0

    def close(self):
        self._child.kill()  # ends the first process of the PID namespace, and thus all others
        self._child.wait(_KILL_TIMEOUT_S)
        self._log.close()
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while left := self._groups():
            for directory in left:
                subprocess.run(["find", directory, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"],
                               stderr=subprocess.DEVNULL, check=False)
            assert time.monotonic() < deadline, f"cannot remove {left}"

    def _groups(self):
        top = pathlib.Path("/sys/fs/cgroup")
        return [path for path in (top / self._group, *top.glob(f"*/{self._group}")) if path.exists()]


def is_installed():
    return SYSTEMD.exists() and shutil.which("systemctl") is not None
