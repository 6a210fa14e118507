# SPDX-License-Identifier: Apache-2.0
"""Replays the compiler cache of ROCm's comgr: ROCm/llvm-project@d2a7cd1a, amd/comgr/src/comgr-cache.cpp
(CommandCache::execute); llvm/llvm-project@1f75f7c0, llvm/lib/Support/Caching.cpp (localCache: the lookup,
CacheStream::commit)."""

import os
import pathlib
import secrets
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import replaying  # noqa: E402

CACHE = pathlib.Path(os.environ["AMD_COMGR_CACHE_DIR"])


def get(key: str) -> bytes:
    entry = CACHE / f"llvmcache-{key}"
    try:
        return entry.read_bytes()
    except (FileNotFoundError, PermissionError):  # both count as a miss
        pass
    data = replaying.build(key)
    CACHE.mkdir(parents=True, exist_ok=True)
    temporary = CACHE / f"amdgpu-compiler-{secrets.token_hex(3)}.tmp.o"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, data)
    try:
        os.rename(temporary, entry)
    except PermissionError:  # the program ignores a failed rename, and uses the data that it has written
        temporary.unlink()
    os.close(fd)
    return data


replaying.run(get)
