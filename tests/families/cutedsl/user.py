# SPDX-License-Identifier: Apache-2.0
"""Compiles four kernels with CuTe DSL, and launches them. The launches fail because there is no driver, but by then the
kernels have been compiled and stored in the cache."""

import functools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import cutlass  # noqa: E402
import steps  # noqa: E402
from cutlass import cute  # noqa: E402
from cutlass.base_dsl.common import DSLCudaRuntimeError  # noqa: E402
from cutlass.base_dsl.compile_backend import CompilerBackend  # noqa: E402

record_miss = CompilerBackend._record_cache_miss


def note_miss(backend: CompilerBackend, context: object) -> None:
    steps.note_build("compile")
    record_miss(backend, context)


CompilerBackend._record_cache_miss = note_miss


@cute.kernel
def scaled(n: cutlass.Int32, factor: cutlass.Constexpr):
    if cutlass.const_expr(factor == 0):
        raise ValueError("cannot be built")
    thread, _, _ = cute.arch.thread_idx()
    if thread == 0:
        cute.printf("{}", n * factor)


@cute.jit
def launch(n: cutlass.Int32, factor: cutlass.Constexpr):
    scaled(n, factor).launch(grid=[1, 1, 1], block=[32, 1, 1])


def check(factor: int) -> None:
    try:
        launch(3, factor)
    except DSLCudaRuntimeError:  # cudaErrorInsufficientDriver, after the compilation
        return
    raise RuntimeError("it was launched")


steps.run({f"kernel{factor}": functools.partial(check, factor) for factor in range(1, 5)},
          broken=functools.partial(check, 0))
