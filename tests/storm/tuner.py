#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One job's process: Triton's own autotuner tries configurations, every third of which cannot be compiled.

No GPU is needed: the kernel's run() compiles for a given target and launches nothing, and the autotuner's benchmark is
replaced by a function that only calls run(). The autotuner itself catches the failures and continues.

It prints the lines READY, CALL and REPORT, as worker.py does. In the report, `failed` contains the numbers of the
configurations that failed, and `longest_wait` is the longest cache lookup of such a configuration, in seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner
from triton.runtime.cache import FileCacheManager
from worker_report import cpu_seconds, describe

TARGET = GPUTarget("cuda", 90, 32)
SIGNATURE = {"x": "*fp32", "n": "i32", "FACTOR": "constexpr"}


@triton.jit
def scale(x, n, FACTOR: tl.constexpr):
    tl.static_assert(FACTOR % 3 != 2)
    offsets = tl.program_id(0) * 256 + tl.arange(0, 256)
    mask = offsets < n
    tl.store(x + offsets, tl.load(x + offsets, mask=mask) * FACTOR, mask=mask)


class CompiledOnly:
    """Replaces the autotuner's kernel: compiles it and does not launch it. The autotuner reads `fn`."""

    fn = scale

    def run(self, *_: Any, FACTOR: int, **options: int) -> None:
        source = ASTSource(fn=scale, signature=SIGNATURE, constexprs={"FACTOR": FACTOR})
        triton.compile(source, target=TARGET, options=options)


class Lookups:
    """Measures the time and counts the hits of Triton's get_group(), the cache lookup of a kernel."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.hits = 0
        self._get_group = FileCacheManager.get_group
        FileCacheManager.get_group = lambda manager, name: self._timed(manager, name)

    def _timed(self, manager: FileCacheManager, name: str) -> Any:
        start = time.monotonic()
        group = self._get_group(manager, name)
        self.seconds += time.monotonic() - start
        self.hits += bool(group)
        return group


class Tuning:
    def __init__(self, count: int) -> None:
        self.calls = 0
        self.longest_wait = 0.0
        self.failed: list[int] = []
        self.lookups = Lookups()
        configs = [triton.Config({"FACTOR": factor}) for factor in range(count)]
        self._tuner = Autotuner(CompiledOnly(), ["x", "n"], configs, ["n"], None, None,
                                do_bench=self._try)

    def run(self) -> None:
        self._tuner.run(0, 1)
        timings = self._tuner.configs_timings
        self.failed = sorted(config.kwargs["FACTOR"] for config, times in timings.items()
                             if math.isinf(times[0]))

    def _try(self, kernel_call: Any, quantiles: Any) -> list[float]:
        """Replaces the autotuner's benchmark of one configuration."""
        self.calls += 1
        self.lookups.seconds = 0.0
        try:
            kernel_call()
        except Exception:
            self.longest_wait = max(self.longest_wait, self.lookups.seconds)
            raise
        finally:
            print("CALL", flush=True)
        return [1.0, 1.0, 1.0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, default=24, help="number of configurations")
    tuning = Tuning(parser.parse_args().configs)
    errors = []
    print("READY", flush=True)
    sys.stdin.readline()
    cpu_before = cpu_seconds()
    start = time.monotonic()
    try:
        tuning.run()
    except Exception as error:  # an error that the autotuner does not catch
        errors.append(describe(error, 0))
    report = {
        "uid": os.getuid(),
        "pid": os.getpid(),
        "calls": tuning.calls,
        "hits": tuning.lookups.hits,
        "errors": errors,
        "failed": tuning.failed,
        "longest_wait": tuning.longest_wait,
        "kernels": {},
        "wall": time.monotonic() - start,
        "cpu": cpu_seconds() - cpu_before,
        "cpu_import": cpu_before,
    }
    print("REPORT " + json.dumps(report), flush=True)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
