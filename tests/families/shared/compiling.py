# SPDX-License-Identifier: Apache-2.0
"""The steps of a user who compiles six C files with a compiler cache. The files are the same for every user."""

from __future__ import annotations

import ctypes
import functools
import pathlib
import subprocess

import steps

COMPILER = pathlib.Path(__file__).resolve().with_name("counted-gcc")


def compile_object(launcher: str, source: pathlib.Path) -> None:
    done = subprocess.run([launcher, COMPILER, "-fPIC", "-c", source, "-o", source.with_suffix(".o")],
                          check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stdout)


def build(launcher: str, number: int) -> None:
    source = pathlib.Path(f"part{number}.c")
    source.write_text(f"int part(void) {{ return {number}; }}\n")
    compile_object(launcher, source)
    library = f"./part{number}.so"
    subprocess.run(["gcc", "-shared", "-o", library, source.with_suffix(".o")], check=True)
    if ctypes.CDLL(library).part() != number:
        raise RuntimeError("the object is another source's")


def build_broken(launcher: str) -> None:
    source = pathlib.Path("broken.c")
    source.write_text("int part(void) { return }\n")
    compile_object(launcher, source)


def run(launcher: str) -> None:
    steps.run({f"part{number}": functools.partial(build, launcher, number) for number in range(6)},
              broken=functools.partial(build_broken, launcher))
