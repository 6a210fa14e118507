# SPDX-License-Identifier: Apache-2.0
"""Replays TileLang's kernel cache: tilelang 0.1.15 (PyPI), tilelang/cache/kernel_cache.py (KernelCache.__new__, cached,
_load_kernel_from_disk, _save_kernel_to_disk)."""

import errno
import functools
import os
import pathlib
import shutil
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import replaying  # noqa: E402

CACHE = pathlib.Path(os.environ["TILELANG_CACHE_DIR"], "0.1.15/linux-x86_64")
NAMES = ("device_kernel.cu", "host_kernel.cu", "kernel_lib.so", "params.json", "manifest.json")


def make_directories() -> None:
    for name in ("kernels", ".staging"):
        (CACHE / name).mkdir(parents=True, exist_ok=True)


@functools.cache
def make_directories_once() -> None:
    make_directories()


def missing(entry: pathlib.Path) -> list[str]:
    return [name for name in NAMES if not (entry / name).exists()]


def load(entry: pathlib.Path) -> bytes:
    return {name: (entry / name).read_bytes() for name in NAMES}["kernel_lib.so"]


def save(key: str, data: bytes) -> None:
    entry = CACHE / "kernels" / key
    make_directories()
    if not missing(entry):
        return
    staging = CACHE / ".staging" / f"{key}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    staging.mkdir()
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
    make_directories_once()
    entry = CACHE / "kernels" / key
    if missing(entry):
        save(key, replaying.build(key))
    return load(entry)


replaying.run(get)
