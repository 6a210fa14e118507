#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One job's process: compiles kernels with an unmodified Triton and reports the results.

It runs as an ordinary user in an ordinary environment, and contains nothing specific to cacheshim. No GPU is needed:
triton.compile() with an explicit target runs the whole compiler, the bundled ptxas and the real cache manager, and
stops before anything is loaded onto a device.

It prints READY once Triton is imported, and then waits for a line on stdin, so that all jobs start together. It prints
CALL after each kernel, and at the end REPORT with a JSON object.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import sys
import time
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.build import compile_so_from_src
from worker_report import cpu_seconds, describe

TARGET = GPUTarget("cuda", 90, 32)
# Simulates a launcher: C code that Triton compiles with gcc into one .so, alone in its directory.
LAUNCHER_SOURCE = "int answer(void) { return 42; }"
LAUNCHER_NUMBER = -1


@triton.jit
def axpy(x, y, n, FACTOR: tl.constexpr):
    offsets = tl.program_id(0) * 256 + tl.arange(0, 256)
    mask = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=mask) * FACTOR, mask=mask)


def kernel_source(index: int) -> ASTSource:
    """Returns kernel number `index`, whose constant makes its cache key unique."""
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "FACTOR": "constexpr"}
    return ASTSource(fn=axpy, signature=signature, constexprs={"FACTOR": index + 2})


class Job:
    """Compiles kernels and counts the results."""

    def __init__(self) -> None:
        self.calls = 0
        self.hits = 0
        self.errors: list[dict[str, Any]] = []
        self.kernels: dict[str, dict[str, str]] = {}
        triton.knobs.compilation.listener = self._on_compiled

    def _on_compiled(self, *, cache_hit: bool, **_: Any) -> None:
        self.hits += int(cache_hit)

    def compile(self, index: int) -> None:
        self.calls += 1
        try:
            kernel = triton.compile(kernel_source(index), target=TARGET)
            digest = hashlib.sha256(kernel.asm["cubin"]).hexdigest()
            self.kernels[str(index)] = {"hash": kernel.hash, "cubin": digest}
        except Exception as error:  # record any error, and continue with the next kernel
            self.errors.append(describe(error, index))
        print("CALL", flush=True)

    def launch(self) -> None:
        """Gets the launcher from the cache, or compiles it with gcc, and loads it."""
        try:
            library = ctypes.CDLL(compile_so_from_src(LAUNCHER_SOURCE, "launcher"))
            if library.answer() != 42:
                raise RuntimeError("the launcher is not what was compiled")
        except Exception as error:
            self.errors.append(describe(error, LAUNCHER_NUMBER))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=24, help="number of distinct kernels")
    parser.add_argument("--first", type=int, default=0, help="kernel to begin with, round robin")
    parser.add_argument("--passes", type=int, default=1, help="times to go through all kernels")
    parser.add_argument("--launcher", action="store_true", help="compile and load a launcher, too")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    job = Job()
    print("READY", flush=True)
    sys.stdin.readline()
    cpu_before = cpu_seconds()
    start = time.monotonic()
    if arguments.launcher:
        job.launch()
    for step in range(arguments.kernels * arguments.passes):
        job.compile((arguments.first + step) % arguments.kernels)
    report = {
        "uid": os.getuid(),
        "pid": os.getpid(),
        "calls": job.calls,
        "hits": job.hits,
        "errors": job.errors,
        "kernels": job.kernels,
        "wall": time.monotonic() - start,
        "cpu": cpu_seconds() - cpu_before,
        "cpu_import": cpu_before,
    }
    print("REPORT " + json.dumps(report), flush=True)
    return 1 if job.errors else 0


if __name__ == "__main__":
    sys.exit(main())
