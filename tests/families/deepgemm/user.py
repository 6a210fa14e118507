# SPDX-License-Identifier: Apache-2.0
"""Replays DeepGEMM's kernel cache: deepseek-ai/DeepGEMM@54e22612, csrc/jit/compiler.hpp (Compiler::build),
kernel_runtime.hpp (check_validity)."""

import os
import pathlib
import shutil
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import replaying  # noqa: E402

CACHE = pathlib.Path(os.environ["DG_JIT_CACHE_DIR"])


def is_valid(entry: pathlib.Path) -> bool:
    """Returns true if the entry exists. Raises an error if the entry lacks a file, because DeepGEMM then aborts."""
    if not entry.exists():
        return False
    if not ((entry / "kernel.cu").exists() and (entry / "kernel.cubin").exists()):
        raise RuntimeError(f"corrupted {entry}")
    return True


def get(key: str) -> bytes:
    entry = CACHE / "cache" / f"kernel.gemm.{key}"
    if not is_valid(entry):
        temporary = CACHE / "tmp" / str(uuid.uuid4())
        temporary.mkdir(parents=True)
        (temporary / "kernel.cu").write_bytes(b"source")
        (temporary / "kernel.cubin").write_bytes(replaying.build(key))
        entry.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(temporary, entry)
        except OSError:
            shutil.rmtree(temporary)
        if not is_valid(entry):
            raise RuntimeError(f"{entry} is not there")
    return (entry / "kernel.cubin").read_bytes()


replaying.run(get)
