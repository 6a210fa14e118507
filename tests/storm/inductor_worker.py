#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One job's process: compiles to C++ for the CPU with an unmodified torch.compile(), and checks the results.

It prints the lines READY, CALL and REPORT, as worker.py does.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters
from worker_report import cpu_seconds, describe

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def scale_and_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2 + y).sum(dim=1)


def soft_maximum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x - y, dim=-1)


def normalized(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:]) * y


def with_gradient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The backward pass is a separate graph with its own kernel."""
    return torch.sin(x) * torch.sigmoid(y)


FUNCTIONS: tuple[Function, ...] = (scale_and_sum, soft_maximum, normalized, with_gradient)


def inputs(needs_gradient: bool) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    x, y = (torch.randn(33, 65, generator=generator) for _ in range(2))
    return x.requires_grad_(needs_gradient), y.requires_grad_(needs_gradient)


def results_of(function: Function, needs_gradient: bool) -> list[torch.Tensor]:
    """Returns the function's result, and the gradients of its sum."""
    x, y = inputs(needs_gradient)
    result = function(x, y)
    if not needs_gradient:
        return [result]
    result.sum().backward()
    assert x.grad is not None and y.grad is not None
    return [result.detach(), x.grad, y.grad]


def check(function: Function) -> None:
    """Verifies that the compiled function returns the same as the uncompiled one."""
    needs_gradient = function is with_gradient
    expected = results_of(function, needs_gradient)
    found = results_of(torch.compile(function), needs_gradient)
    torch.testing.assert_close(found, expected)


def main() -> int:
    logging.disable(logging.WARNING)  # torch warns that there is no GPU; warnings about a cache are counted below
    torch.set_num_threads(1)
    errors: list[dict[str, Any]] = []
    print("READY", flush=True)
    sys.stdin.readline()
    cpu_before = cpu_seconds()
    start = time.monotonic()
    for index, function in enumerate(FUNCTIONS):
        try:
            check(function)
        except Exception as error:  # record any error, and continue with the next function
            errors.append(describe(error, index))
        print("CALL", flush=True)
    report = {
        "uid": os.getuid(),
        "pid": os.getpid(),
        "calls": len(FUNCTIONS),
        "hits": counters["inductor"]["fxgraph_cache_hit"],
        "counters": {
            name: dict(counters[name]) for name in ("inductor", "aot_autograd") if name in counters
        },
        "errors": errors,
        "kernels": {},
        "wall": time.monotonic() - start,
        "cpu": cpu_seconds() - cpu_before,
    }
    print("REPORT " + json.dumps(report), flush=True)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
