# SPDX-License-Identifier: Apache-2.0
"""Compiles three functions with torch.compile() to C++ for the CPU."""

import functools
import logging
import pathlib
import sys
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import steps  # noqa: E402
import torch  # noqa: E402

FUNCTIONS: dict[str, Callable] = {
    "sums": lambda x, y: torch.relu(x * 2 + y).sum(dim=1),
    "maximum": lambda x, y: torch.softmax(x - y, dim=-1),
    "product": lambda x, y: torch.sin(x) * torch.sigmoid(y),
}


def check(function: Callable) -> None:
    x, y = torch.arange(65 * 33).reshape(65, 33) / 1000, torch.ones(65, 33)
    torch.testing.assert_close(torch.compile(function)(x, y), function(x, y))


logging.disable(logging.WARNING)  # torch warns that there is no GPU
torch.set_num_threads(1)
steps.run({name: functools.partial(check, function) for name, function in FUNCTIONS.items()},
          broken=functools.partial(check, lambda x, y: x @ y))
