# SPDX-License-Identifier: Apache-2.0
"""Compiles four kernels with triton.compile(), which needs no GPU if it is told the target."""

import functools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import steps  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

TARGET = GPUTarget("cuda", 90, 32)
SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i32", "FACTOR": "constexpr"}


@triton.jit
def scaled(x, y, n, FACTOR: tl.constexpr):
    tl.static_assert(FACTOR > 0)
    offsets = tl.program_id(0) * 256 + tl.arange(0, 256)
    mask = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=mask) * FACTOR, mask=mask)


def check(factor: int) -> None:
    source = ASTSource(fn=scaled, signature=SIGNATURE, constexprs={"FACTOR": factor})
    if not triton.compile(source, target=TARGET).asm["cubin"].startswith(b"\x7fELF"):
        raise RuntimeError("no cubin")


steps.run({f"kernel{factor}": functools.partial(check, factor) for factor in range(1, 5)},
          broken=functools.partial(check, 0))
