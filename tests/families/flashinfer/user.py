# SPDX-License-Identifier: Apache-2.0
"""Replays FlashInfer's JIT cache: flashinfer 0.7.2.post1 (PyPI), flashinfer/jit/core.py (JitSpec.build_and_load,
JitSpecNvcc.build, run_ninja), utils.py (write_if_different).

run_ninja() simulates ninja, which rebuilds a file that is older than its source or is not in .ninja_log.
"""

import fcntl
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import replaying  # noqa: E402

CACHE = pathlib.Path(os.environ["FLASHINFER_WORKSPACE_BASE"], ".cache/flashinfer/0.7.2/90a")


def write_if_different(path: pathlib.Path, data: bytes) -> None:
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def run_ninja(directory: pathlib.Path, source: pathlib.Path, key: str) -> None:
    library, log = directory / f"{key}.so", directory / ".ninja_log"
    is_built = library.exists() and log.exists() and library.stat().st_mtime >= source.stat().st_mtime
    if not is_built:
        library.write_bytes(replaying.build(key))
        log.write_text(f"{key}.so\n")


def get(key: str) -> bytes:
    source = CACHE / "generated" / key / "kernel.cu"
    write_if_different(source, f"source of {key}".encode())
    directory = CACHE / "cached_ops" / key
    locks = CACHE / "cached_ops/tmp"
    locks.mkdir(parents=True, exist_ok=True)
    with open(locks / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            write_if_different(directory / "build.ninja", f"rule of {key}".encode())
            run_ninja(directory, source, key)
            return (directory / f"{key}.so").read_bytes()
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)


replaying.run(get)
