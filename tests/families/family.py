# SPDX-License-Identifier: Apache-2.0
"""The description of a family, and the two kinds of places for its cache: a plain directory and a mount."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
from collections.abc import Callable

import mounts

REPOSITORY = mounts.REPOSITORY
VENVS = REPOSITORY / "build/venv"
BUILDS = "{builds}"  # in Family.environment, stands for the file to which each build adds a line


@dataclasses.dataclass(frozen=True)
class Family:
    """A family: its program, its cache, and the limits of its tests. Each user runs `user.py` in the family's directory
    (shared/steps.py)."""

    title: str                       # the title in the table, with {version} for the version
    directory: pathlib.Path
    profile: str                     # the profile, and the cache's directory below the mount
    variable: str
    python: pathlib.Path             # the interpreter that runs user.py
    version: Callable[[], str]
    steps: int                       # the number of results that a user needs
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    library_sets_variable: bool = True
    variant: str = ""                # distinguishes several families in one directory
    newest_python: tuple[int, int] | None = None  # the newest system Python for which the program has a wheel
    server: str = ""                 # "index" or "hub": the server from which results are downloaded
    is_long: bool = False            # if true, only `scripts/test --families` tests it
    # The most builds that the tests on a mount allow: by four users at once, and by a later user.
    most_builds: int = 0
    most_later_builds: int = 0

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.directory.name, self.variant)))


def output_of(*argv: object) -> str:
    return subprocess.run([str(word) for word in argv], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def version_in_venv(venv: str, package: str) -> Callable[[], str]:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return lambda: output_of(VENVS / venv / "bin/python", "-c", code).strip()


def replay(program: str, directory: pathlib.Path, variable: str, is_long: bool = True,
           most_builds: int = 16) -> Family:
    """Returns the family of a program that needs a GPU and is therefore simulated (shared/replaying.py)."""
    return Family(title=f"{program}, replayed", directory=directory, profile=directory.name,
                  variable=variable, python=pathlib.Path("/usr/bin/python3"), version=lambda: "",
                  steps=4, is_long=is_long, most_builds=most_builds)


def torch_extensions(title: str, directory: pathlib.Path, most_builds: int) -> Family:
    """Returns a family whose users run shared/extensions.py."""
    return Family(title=title, directory=directory, profile="torch-extensions",
                  variable="TORCH_EXTENSIONS_DIR", python=VENVS / "torch/bin/python",
                  version=version_in_venv("torch", "torch"), steps=3, is_long=True,
                  environment={"CXX": str(REPOSITORY / "tests/families/shared/counted-g++"),
                               "MAX_JOBS": "1", "OMP_NUM_THREADS": "1"},
                  library_sets_variable=False, most_builds=most_builds)


class NativePlace:
    """A plain directory to which all users may write, as clusters share a cache without cacheshim."""

    def __init__(self, scratch: pathlib.Path):
        self._path = scratch / "shared"
        self._path.mkdir()
        self._path.chmod(0o777)

    def environment(self, family: Family, _job: str) -> dict[str, str]:
        return {family.variable: str(self._path / family.profile)}

    def end_job(self, _job: str) -> None:
        pass

    def flight_timeouts(self) -> int:
        return 0

    def rejections(self) -> int:
        return 0


class MountedPlace:
    """A mount. Each user has its own job, and preloads the library."""

    def __init__(self, mount: mounts.Mount, library: str):
        self._mount, self._library = mount, library

    def environment(self, family: Family, job: str) -> dict[str, str]:
        env = {"LD_PRELOAD": self._library, "CACHESHIM_MOUNT": str(self._mount.path),
               "CACHESHIM_JOB": job}
        if not family.library_sets_variable:
            env[family.variable] = str(self._mount.path / family.profile)
        return env

    def end_job(self, job: str) -> None:
        self._mount.end_job(job, "success")

    def flight_timeouts(self) -> int:
        """Returns the number of waits for another user's build that `flight_timeout` has ended."""
        return self._mount.stats()["flight_timeouts"]

    def rejections(self) -> int:
        """Returns how often a user has opened an entry of the base and then built it again."""
        stats = self._mount.stats()
        return stats["entries_rejected"] + stats["rebuilds_equal"]
