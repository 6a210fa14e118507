# SPDX-License-Identifier: Apache-2.0
"""The steps of a user who builds C++ extensions for the CPU with torch. The extensions are the same for every user."""

import ctypes
import functools

import steps
from torch.utils import cpp_extension

NUMBERS = {"one": 1, "two": 2, "three": 3}


def load(name: str, source: str) -> str:
    """Builds and loads the extension; returns the path of its library. The sources do not include torch's headers,
    which take a minute to compile."""
    return cpp_extension.load_inline(name, source, no_implicit_headers=True, is_python_module=False)


def check(name: str, number: int) -> None:
    path = load(name, f'extern "C" int number() {{ return {number}; }}')
    if ctypes.CDLL(path).number() != number:
        raise RuntimeError("the library is another source's")


def run() -> None:
    steps.run({name: functools.partial(check, name, number) for name, number in NUMBERS.items()},
              broken=functools.partial(load, "broken", "#error cannot be built"))
