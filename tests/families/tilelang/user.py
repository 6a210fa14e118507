# SPDX-License-Identifier: Apache-2.0
"""tilelang 0.1.15 (PyPI), tilelang/cache/kernel_cache.py: KernelCache.cached, _load_kernel_from_disk, _save_kernel_to_disk."""

import errno
import os
import pathlib
import shutil
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import replaying  # noqa: E402

CACHE = pathlib.Path(os.environ["TILELANG_CACHE_DIR"], "0.1.15/linux-x86_64")
NAMES = ("device_kernel.cu", "host_kernel.cu", "kernel_lib.so", "params.json", "manifest.json")


def load(entry: pathlib.Path) -> bytes:
    return {name: (entry / name).read_bytes() for name in NAMES}["kernel_lib.so"]


def save(key: str, data: bytes) -> None:
    entry = CACHE / "kernels" / key
    if entry.exists():
        return
    entry.parent.mkdir(parents=True, exist_ok=True)
    staging = CACHE / ".staging" / f"{key}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    staging.mkdir(parents=True)
    with replaying.removed_on_failure(staging):
        for name in NAMES:
            temporary = staging / f".{name}.{os.getpid()}_{uuid.uuid4().hex}.tmp"
            replaying.write_and_rename(staging / name, temporary, data)
        try:
            os.rename(staging, entry)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            shutil.rmtree(staging)


def get(key: str) -> bytes:
    entry = CACHE / "kernels" / key
    if not all((entry / name).exists() for name in NAMES):
        save(key, replaying.build(key))
    return load(entry)


replaying.run(get)
