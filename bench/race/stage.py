# SPDX-License-Identifier: Apache-2.0
"""Sets up a race: creates its directories, mounts each contestant and unmounts it again even after a failure, and
measures its daemons.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contestants import CACHE, JOB, OURS, Contestant, named

MOUNT_TIMEOUT_S = 60
ROW_TIMEOUT_S = 300


class Failed(Exception):
    """A contestant failed at an operation. The text gives the reason in one line."""


class CannotMount(Failed):
    """The contestant could not be mounted at all."""


@dataclass(frozen=True)
class Mounted:
    """A mounted contestant."""

    directory: Path  # the cache directory, as its user sees it
    daemons: tuple[int, ...]
    seconds: float  # the time that mounting took

    def resident_bytes(self) -> int:
        return sum(_resident_bytes(pid) for pid in self.daemons)

    def cpu_seconds(self) -> float:
        """Returns the CPU time of all threads, from each process's clock. The clock's id is computed as
        clock_getcpuclockid(3) computes it."""
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self.daemons)


@dataclass(frozen=True)
class Stage:
    """The directories of a race below `area`, on one file system."""

    area: Path
    cacheshim: Path
    worker: Path
    keys: int
    user: int  # the uid that owns the trees and runs the measured operations
    empty_files: bool = False
    before: Path | None = None  # the program of another build

    @property
    def lower(self) -> Path:
        """The lower directory of the other overlays. The base has the same depth below it as a cache has in
        cacheshim's mount (.jobs/JOB/triton)."""
        return self.area / "lower"

    @property
    def store(self) -> Path:
        return self.base.parent

    @property
    def base(self) -> Path:
        return self.lower / CACHE

    @property
    def locked_base(self) -> Path:
        """A read-only bind mount of `lower`, for contestants that must not change the base."""
        return self.area / "base"

    @property
    def native(self) -> Path:
        return self.area / "native" / CACHE

    @property
    def mount_point(self) -> Path:
        return self.area / "mount"

    @property
    def scratch(self) -> Path:
        return self.area / "layer"

    def prepare(self, with_native: bool = True) -> None:
        """Creates the base and the native directory, and reads them into the page cache."""
        for directory in (self.mount_point, self.locked_base):
            directory.mkdir()
        for tree in (self.base, self.native) if with_native else (self.base,):
            tree.mkdir(parents=True)
            os.chown(tree, self.user, self.user)
            self.make(tree, self.user)
            self.work("read", tree, "--keys", self.keys)
        # The mount is read-only, because some overlays write even to lower directories that are declared read-only.
        run(["mount", "--bind", "-o", "ro", self.lower, self.locked_base], MOUNT_TIMEOUT_S)

    def make(self, tree: Path, user: int = 0) -> None:
        """Restores a tree to its original state. The files that it writes belong to `user`, by default to root, as
        published files do."""
        empty = ["--empty"] if self.empty_files else []
        run([self.worker, "tree", tree, "--keys", self.keys, *empty], ROW_TIMEOUT_S, user=user)

    def work(
        self, *arguments: object, publish: str | None = None, preload: str = ""
    ) -> dict[str, float]:
        """Runs the worker as the race's user, and returns the values that it prints."""
        environment = {**os.environ, "CACHESHIM_JOB": JOB}
        if preload:
            environment["LD_PRELOAD"] = str(self.area / preload)
            environment["CACHESHIM_MOUNT"] = str(self.mount_point)
        if publish:
            environment["CACHESHIM_PUBLISH"] = publish
        try:
            told = run([self.worker, *arguments], ROW_TIMEOUT_S, environment, self.user)
            return json.loads(told)
        except Failed as failure:
            raise Failed(str(failure).replace(f"{self.area}/", "")) from None

    @contextmanager
    def mounted(self, contestant: Contestant) -> Iterator[Mounted]:
        """Mounts the contestant over the base, with an empty layer, and unmounts it at the end."""
        self._clear_scratch()
        for name in ("upper", "work"):
            (self.scratch / name).mkdir(parents=True)
        os.chown(self.scratch / "upper", self.user, self.user)
        before = processes()
        try:
            begin = time.monotonic()
            self._mount(contestant)
            seconds = time.monotonic() - begin
            daemons = tuple(sorted(processes() - before))
            yield Mounted(Path(*self._fill((contestant.seen_at,))), daemons, seconds)
        finally:
            self._take_away(contestant, before)
            self._clear_scratch()

    def way_of_requests(self) -> str:
        """Returns how a cacheshim mount receives its requests. Reads the status file of such a mount."""
        try:
            with self.mounted(named(OURS)):
                return json.loads((self.mount_point / ".cacheshim/status").read_text())["requests"]
        except Failed:
            return "no way: it cannot be mounted"

    def _mount(self, contestant: Contestant) -> None:
        if not contestant.mount:
            return
        try:
            run(self._fill(contestant.mount), MOUNT_TIMEOUT_S)
        except Failed as failure:
            raise CannotMount(str(failure)) from None
        if not is_mounted(self.mount_point):
            raise CannotMount("the mount command succeeded, but nothing is mounted")

    def _fill(self, words: tuple[str, ...]) -> list[str]:
        return [
            word.format(
                base=self.locked_base, store=self.store, native=self.native, mount=self.mount_point,
                upper=self.scratch / "upper", work=self.scratch / "work", cacheshim=self.cacheshim,
                before=self.before,
            )
            for word in words
        ]

    def _take_away(self, contestant: Contestant, before: set[int]) -> None:
        if is_mounted(self.mount_point):
            try:
                run(self._fill(contestant.unmount), MOUNT_TIMEOUT_S)
            except Failed:
                run(["umount", "-l", self.mount_point], MOUNT_TIMEOUT_S)
        _wait_until_gone(before)

    def _clear_scratch(self) -> None:
        for directory in (self.scratch, self.store / ".cacheshim"):
            shutil.rmtree(directory, ignore_errors=True)


def run(
    command: list[object], timeout_s: float, environment: dict[str, str] | None = None,
    user: int = 0,
) -> str:
    """Runs the command, and returns its output. Raises Failed with the reason: if the command fails, with the first
    line of its error output."""
    # Collects the output in memfds, not in pipes: a daemon that the command has started may keep a pipe open, and a
    # reader of the pipe would then wait until the daemon exits.
    out = os.memfd_create("out")
    err = os.memfd_create("err")
    try:
        result = subprocess.run(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            timeout=timeout_s, env=environment, user=user, group=user, extra_groups=[], check=False,
        )
        if result.returncode != 0:
            complaint = _text_of(err).strip().splitlines() or [f"status {result.returncode}"]
            raise Failed(complaint[0])
        return _text_of(out)
    except subprocess.TimeoutExpired:
        raise Failed(f"not ready within {timeout_s:.0f} s") from None
    except FileNotFoundError:
        raise Failed(f"'{command[0]}' is not installed") from None
    finally:
        os.close(out)
        os.close(err)


def _text_of(file: int) -> str:
    return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")


def is_mounted(path: Path) -> bool:
    """Returns true if something is mounted at `path`, even if its daemon is dead."""
    table = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == str(path) for line in table)


def processes() -> set[int]:
    """Returns all processes of the race's own PID namespace."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _wait_until_gone(before: set[int]) -> None:
    """Waits until the daemons, which exit shortly after the unmount, are gone; kills the processes that remain."""
    for patience_s in (20, 10):
        deadline = time.monotonic() + patience_s
        while (left := processes() - before) and time.monotonic() < deadline:
            time.sleep(0.005)
        for pid in left:
            _kill(pid)
    if left:
        raise SystemExit(f"bench: processes {sorted(left)} do not end; the race cannot go on")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has already exited


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS")
    )
