# SPDX-License-Identifier: Apache-2.0
"""What Triton 2 needs besides itself to compile: torch, of which it only reads the version, and the driver's
library, with which its launchers are linked."""

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
    """Triton 2.0's own operators, which the test does not use, read more attributes when they are imported."""

    version = types.SimpleNamespace(hip=None, cuda="11.8")
    autograd = types.SimpleNamespace(Function=type("Function", (), {"apply": None}))

    def __getattr__(self, name: str) -> mock.MagicMock:
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock(name=name)


def replace_torch() -> None:
    sys.modules["torch"] = Torch("torch")


def compiler_module() -> types.ModuleType:
    """2.1 has a package `compiler` that contains a module of the same name."""
    try:
        return importlib.import_module("triton.compiler.compiler")
    except ModuleNotFoundError:
        return importlib.import_module("triton.compiler")


def instance_descriptor() -> object:
    return compiler_module().instance_descriptor()


def replace_driver() -> None:
    """Loaded once for all launchers, which need a library named libcuda.so.1."""
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
