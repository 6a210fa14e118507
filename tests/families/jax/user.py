# SPDX-License-Identifier: Apache-2.0
"""Compiles four functions with jax.jit()."""

import functools
import pathlib
import sys
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import steps  # noqa: E402
from jax import monitoring  # noqa: E402

MISS = "/jax/compilation_cache/cache_misses"
VALUES = np.arange(1, 65, dtype=np.float32)

# The function that each step compiles, and the same function in NumPy.
FUNCTIONS: dict[str, tuple[Callable, Callable]] = {
    "doubled": (lambda x: x * 2 + 1, lambda x: x * 2 + 1),
    "sines": (lambda x: jnp.sin(x) ** 2, lambda x: np.sin(x) ** 2),
    "sums": (jnp.cumsum, np.cumsum),
    "roots": (lambda x: jnp.sqrt(x) / x, lambda x: np.sqrt(x) / x),
}


def check(function: Callable, expected: Callable) -> None:
    np.testing.assert_allclose(jax.jit(function)(VALUES), expected(VALUES), rtol=1e-4)


def on_event(name: str, **_: object) -> None:
    if name == MISS:
        steps.note_build("compile")


monitoring.register_event_listener(on_event)
steps.run({name: functools.partial(check, *pair) for name, pair in FUNCTIONS.items()},
          broken=functools.partial(check, lambda x: x @ jnp.ones((3, 3)), np.sum))
