# SPDX-License-Identifier: Apache-2.0
"""The steps of a user who installs packages from the package index (index.py)."""

import functools
import pathlib
import subprocess
import sys

import steps

NAMES = ("alpha", "beta", "gamma", "built")


def install(command: list[str], name: str) -> None:
    target = pathlib.Path("installed", name)
    done = subprocess.run([*command, "--target", str(target), name], text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise RuntimeError(done.stdout)
    code = f"import {name}; assert {name}.NAME == {name!r}"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(target)}, check=True)


def run(command: list[str]) -> None:
    steps.run({name: functools.partial(install, command, name) for name in NAMES},
              broken=functools.partial(install, command, "broken"))
