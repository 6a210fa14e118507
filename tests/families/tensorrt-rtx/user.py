# SPDX-License-Identifier: Apache-2.0
"""pytorch/TensorRT@d7f20628, py/torch_tensorrt/runtime/_runtime_cache.py: runtime_cache(), RuntimeCache.load and save.

One file holds all that was compiled. It is read before the engine runs and written anew afterwards, both under filelock's lock
beside it, which is waited for 10 s. What others have saved in between is lost, natively as here.
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
    save(kernels)  # whether or not anything was compiled
    return kernels[key].encode()


replaying.run(get)
