# SPDX-License-Identifier: Apache-2.0
"""The environment in which storms run: a private area of the machine that disappears with this process.

enter-lab.sh has put this process into its own mount and PID namespaces, and into a root with two additional
directories: /ci-cache, to mount on, and AREA. Only one directory remains on disk afterwards, AREA/work.

Other users must be able to reach programs and libraries, but the repository may be below a directory that only root can
enter. So prepare() copies or bind-mounts the programs and libraries below AREA, which all users can enter:

    AREA/share/        what jobs need, at the same path as in containers
      stage/           this directory's scripts, the library
      venv/NAME/       virtual environments
      exchange/        files that jobs and harness share (mode 1777)
    AREA/work/         stores, homes
    AREA/rootfs/       where containers build their root
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
STAGED = (
    "worker.py",
    "tuner.py",
    "worker_report.py",
    "inductor_worker.py",
    "g++-wrapper",
    "putter.py",
    "reader.py",
    "cleaner.py",
    "ptxas-wrapper",
    "container.sh",
)
MOUNT_POINT = Path("/ci-cache")


class Progress:
    """Prints lines on stderr, to show that the program does not hang. tick() prints at most one per `interval`
    seconds."""

    def __init__(self, interval: float = 2.0) -> None:
        self._interval = interval
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        print(f"  … {text}", file=sys.stderr, flush=True)
        self._last = time.monotonic()

    def tick(self, text: str) -> None:
        """Prints `text` if nothing was printed for `interval` seconds."""
        if time.monotonic() - self._last >= self._interval:
            self.say(text)


def run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True)


@dataclass
class Lab:
    """Paths and helpers that scenarios share."""

    area: Path
    cacheshim: Path  # the program, which scenarios run as root
    venvs: frozenset[str]  # the installed virtual environments: "triton" (the newest), "triton-2.1.0", …
    progress: Progress = field(default_factory=Progress)
    _made: int = 0

    @property
    def share(self) -> Path:
        return self.area / "share"

    @property
    def stage(self) -> Path:
        return self.share / "stage"

    @property
    def exchange(self) -> Path:
        return self.share / "exchange"

    def python_of(self, venv: str) -> Path:
        return self.share / "venv" / venv / "bin/python"

    @property
    def python(self) -> Path:
        """The Python that has the newest Triton."""
        return self.python_of("triton")

    @property
    def library(self) -> Path:
        return self.stage / "libcacheshim.so"

    @property
    def ptxas(self) -> Path:
        """The real ptxas that Triton uses for the target of worker.py."""
        pattern = "lib/python3*/site-packages/triton/backends/nvidia/bin/ptxas-blackwell"
        found = glob.glob(str(self.python.parent.parent / pattern))
        if not found:
            raise SystemExit("storm: this Triton has no bundled ptxas-blackwell")
        return Path(found[0])

    def fresh(self, name: str) -> Path:
        """Creates a new directory on disk with mode 0755."""
        self._made += 1
        path = self.area / "work" / f"{self._made:03d}-{name}"
        path.mkdir(parents=True)
        return path


def prepare(repo: Path, work: Path, venvs: dict[str, Path]) -> Lab:
    """Creates the directories of AREA by bind mounts and copies."""
    area = Path(os.environ["CACHESHIM_LAB"])  # set by enter-lab.sh
    os.umask(0o022)
    binds = {"work": work, **{f"share/venv/{name}": path for name, path in venvs.items()}}
    for name, source in binds.items():
        (area / name).mkdir(parents=True)
        run("mount", "--bind", source, area / name)
    for name in ("share/stage", "share/exchange", "rootfs"):
        (area / name).mkdir()
    (area / "share/exchange").chmod(0o1777)
    dist = repo / "build/dist"
    for name in STAGED:
        shutil.copy(HERE / name, area / "share/stage")
    library = dist / "lib/libcacheshim.so"
    if library.exists():
        shutil.copy(library, area / "share/stage")
    return Lab(
        area=area,
        cacheshim=dist / "bin/cacheshim",
        venvs=frozenset(venvs),
    )
