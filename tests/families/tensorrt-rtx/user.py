# SPDX-License-Identifier: Apache-2.0
"""Replays Torch-TensorRT's runtime cache: pytorch/TensorRT@d7f20628, py/torch_tensorrt/runtime/_runtime_cache.py
(runtime_cache(), RuntimeCache.load and save).

One file contains all compiled kernels. The program reads the file before the engine runs, and replaces it afterwards.
For each of these accesses, the program takes a filelock beside the file, and waits at most 10 s for this lock. Kernels
that another user saves between the read and the replacement are lost, natively as well as through cacheshim.
"""

import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import replaying  # noqa: E402
from filelock import FileLock  # noqa: E402

CACHE = pathlib.Path(os.environ["FAMILY_RUNTIME_CACHE"], "runtime_cache.bin")
LOCK_TIMEOUT_S = 10


def load() -> dict[str, str]:
    if not CACHE.exists():
        return {}
    with FileLock(f"{CACHE}.lock").acquire(timeout=LOCK_TIMEOUT_S):
        return json.loads(CACHE.read_text())


def save(kernels: dict[str, str]) -> None:
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    temporary = f"{CACHE}.tmp"
    with FileLock(f"{CACHE}.lock").acquire(timeout=LOCK_TIMEOUT_S):
        pathlib.Path(temporary).write_text(json.dumps(kernels))
        shutil.move(temporary, CACHE)


def get(key: str) -> bytes:
    kernels = load()
    if key not in kernels:
        kernels[key] = replaying.build(key).decode()
    save(kernels)  # the program saves the file even if it has compiled nothing
    return kernels[key].encode()


replaying.run(get)
