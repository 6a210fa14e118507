# SPDX-License-Identifier: Apache-2.0
"""Compiles six C files, the same for every user, by way of ccache."""

import ctypes
import functools
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import steps  # noqa: E402

COMPILER = pathlib.Path(__file__).resolve().with_name("counted-gcc")


def build(number: int) -> None:
    source = pathlib.Path(f"part{number}.c")
    source.write_text(f"int part(void) {{ return {number}; }}\n")
    compile_object(source)
    library = f"./part{number}.so"
    subprocess.run(["gcc", "-shared", "-o", library, source.with_suffix(".o")], check=True)
    if ctypes.CDLL(library).part() != number:
        raise RuntimeError("the object is another source's")


def build_broken() -> None:
    source = pathlib.Path("broken.c")
    source.write_text("int part(void) { return }\n")
    compile_object(source)


def compile_object(source: pathlib.Path) -> None:
    subprocess.run(["ccache", COMPILER, "-fPIC", "-c", source, "-o", source.with_suffix(".o")],
                   check=True, stdin=subprocess.DEVNULL)


steps.run({f"part{number}": functools.partial(build, number) for number in range(6)},
          broken=build_broken)
