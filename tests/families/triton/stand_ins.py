# SPDX-License-Identifier: Apache-2.0
"""Replacements for two libraries without which Triton 2 compiles nothing: torch, whose version it reads, and the CUDA
driver's library, to which it links its launchers."""

import ctypes
import importlib
import pathlib
import subprocess
import sys
import types
from unittest import mock

DRIVER = """
int cuLaunchKernel(void) { return 1; }
int cuGetErrorString(int error, const char** text) { *text = "no driver"; return 0; }
int cuPointerGetAttribute(void) { return 1; }
"""


class Torch(types.ModuleType):
    """A stand-in for the module torch. Triton 2.0's operators, which the test does not use, read other attributes of
    torch when they are imported; these attributes are mock objects."""

    version = types.SimpleNamespace(hip=None, cuda="11.8")
    autograd = types.SimpleNamespace(Function=type("Function", (), {"apply": None}))

    def __getattr__(self, name: str) -> mock.MagicMock:
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock(name=name)


def replace_torch() -> None:
    sys.modules["torch"] = Torch("torch")


def compiler_module() -> types.ModuleType:
    """Returns Triton's compiler module: in 2.1, it is in a package of the same name."""
    try:
        return importlib.import_module("triton.compiler.compiler")
    except ModuleNotFoundError:
        return importlib.import_module("triton.compiler")


def instance_descriptor() -> object:
    return compiler_module().instance_descriptor()


def replace_driver() -> None:
    """Builds a library named libcuda.so.1, loads it for the launchers, which need a library of that name, and makes
    Triton link the launchers to it."""
    directory = pathlib.Path("driver").resolve()
    directory.mkdir()
    library = directory / "libcuda.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-", "-o", library],
                   input=DRIVER, text=True, check=True)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    try:
        build = importlib.import_module("triton.common.build")
    except ModuleNotFoundError:
        build = compiler_module()
    build.libcuda_dirs = lambda: [str(directory)]
