# SPDX-License-Identifier: Apache-2.0
"""Compiles four kernels with triton.compile(), which needs no GPU if the target is given."""

import functools
import importlib.metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

VERSION = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])
if VERSION < (3, 0):
    import stand_ins

    stand_ins.replace_torch()

import steps  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def scaled(x, y, n, FACTOR: tl.constexpr):
    offsets = tl.program_id(0) * 256 + tl.arange(0, 256)
    mask = offsets < n
    if FACTOR == 0:
        tl.store(x + y, n)  # adding two pointers is an error, so this kernel cannot be built
    tl.store(y + offsets, tl.load(x + offsets, mask=mask) * FACTOR, mask=mask)


TYPES = {"x": "*fp32", "y": "*fp32", "n": "i32"}


def compile_with_source(factor: int):
    """Compiles a kernel with Triton 3.0 or later."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = TYPES if VERSION < (3, 2) else {**TYPES, "FACTOR": "constexpr"}
    source = ASTSource(scaled, signature, {"FACTOR": factor})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32))


def compile_by_numbers(factor: int):
    """Compiles a kernel with Triton 2.x, which identifies arguments by number."""
    signature = dict(enumerate(TYPES.values()))
    options = {"device_type": "cuda"} if VERSION > (2, 0) else {}
    return triton.compile(scaled, signature=signature, constants={3: factor}, cc=80,
                          configs=[stand_ins.instance_descriptor()], **options)


def check(factor: int) -> None:
    compile_kernel = compile_with_source if VERSION >= (3, 0) else compile_by_numbers
    if not compile_kernel(factor).asm["cubin"].startswith(b"\x7fELF"):
        raise RuntimeError("no cubin")


if VERSION < (3, 0):
    stand_ins.replace_driver()
steps.run({f"kernel{factor}": functools.partial(check, factor) for factor in range(1, 5)},
          broken=functools.partial(check, 0))
