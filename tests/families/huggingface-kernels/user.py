# SPDX-License-Identifier: Apache-2.0
"""Downloads four kernels from a hub with kernels.install_kernel(), and imports them."""

import functools
import importlib.util
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import steps  # noqa: E402
from kernels import install  # noqa: E402

NAMES = ("relu", "silu", "gelu", "norm")


def get(name: str) -> None:
    directory = install.install_kernel(f"test/{name}", revision="main", backend="cpu", trust_remote_code=True)
    spec = importlib.util.spec_from_file_location(name, directory / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.NAME != name:
        raise RuntimeError(f"{directory} is another kernel's")


steps.run({name: functools.partial(get, name) for name in NAMES},
          broken=functools.partial(get, "broken"))
