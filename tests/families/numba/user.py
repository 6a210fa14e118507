# SPDX-License-Identifier: Apache-2.0
"""Compiles four functions with numba.njit(cache=True)."""

import functools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import functions  # noqa: E402
import steps  # noqa: E402
from numba.core import event  # noqa: E402


class Builds(event.Listener):
    """Records a build for each "numba:compile" event; Numba sends none for a function that it finds in its cache."""

    def on_start(self, _: event.Event) -> None:
        steps.note_build("compile")

    def on_end(self, _: event.Event) -> None:
        pass


def check(name: str, expected: float) -> None:
    if getattr(functions, name)(100) != expected:
        raise RuntimeError("a wrong result")


event.register("numba:compile", Builds())
steps.run({name: functools.partial(check, name, expected)
           for name, expected in functions.RESULTS.items()},
          broken=functools.partial(check, "broken", 0))
