# SPDX-License-Identifier: Apache-2.0
"""Replays the calls by which the programs of each cache family write their cache (profiles/*.toml cite their sources).

A replay is a generator that performs one step of a job at a time, so that two replays can be interleaved. Its data
contains a mark, which distinguishes the files of two builders.
"""

import dataclasses
import errno
import fcntl
import os
import typing
import uuid


@dataclasses.dataclass
class Replay:
    name: str
    steps: typing.Callable     # (job, mark) → generator
    files: typing.Callable     # mark → {path: data}: the files that are published
    early: bool = True         # true: published as soon as it is complete; false: when the job succeeds


def in_place(job, path, data):
    job.write(path, data)


def renamed(job, directory, name, temporary, data):
    job.write(f"{directory}/{temporary}", data)
    yield
    job("os.replace", job.path(f"{directory}/{temporary}"), job.path(f"{directory}/{name}"))
    yield


def make(job, directory):
    job("os.makedirs", job.path(directory), exist_ok=True)


# ---- triton/runtime/cache.py, FileCacheManager.put: 3.x, 2.1

TRITON_NAMES = ("k.ttir", "k.ptx", "k.cubin", "k.json")


def triton_group(job, directory):
    names = [f'"{name}": "{job.path(directory, name)}"' for name in TRITON_NAMES]
    return ('{"child_paths": {' + ", ".join(names) + "}}").encode()


def triton(job, mark, directory="triton/KEY3"):
    make(job, directory)
    yield
    for name in (*TRITON_NAMES, "__grp__k.json"):
        data = triton_group(job, directory) if name.startswith("__grp__") else mark + name.encode()
        temporary = f"{directory}/tmp.pid_{job.pid}_{uuid.uuid4()}"
        make(job, temporary)
        yield
        job.write(f"{temporary}/{name}", data)
        yield
        job("os.replace", job.path(temporary, name), job.path(directory, name))
        yield
        job("removedirs_error", job.path(temporary))
        yield


def triton_2_1(job, mark):
    make(job, "triton/KEY21")
    for name in (*TRITON_NAMES, "__grp__k.json"):
        data = mark + name.encode()
        if name.startswith("__grp__"):
            data = triton_group(job, "triton/KEY21")
        yield from renamed(job, "triton/KEY21", name, f"{name}.tmp.pid_{job.pid}_{os.getpid()}", data)


def triton_files(directory, mark):
    found = {f"{directory}/{name}": mark + name.encode() for name in TRITON_NAMES}
    return {**found, f"{directory}/__grp__k.json": None}


# ---- torch/_inductor/codecache.py, write_atomic

def inductor(job, mark):
    for directory, name in (("inductor/ab", "cabc.py"), ("inductor/fxgraph/bc/fbckey", "0a1b"),
                         ("inductor/aotautograd/akey", "entry")):
        make(job, directory)
        yield from renamed(job, directory, name, f".{job.pid}.140.tmp", mark + name.encode())
    yield from triton(job, mark, "inductor/triton/0/KEY")


def inductor_files(mark):
    return {"inductor/ab/cabc.py": mark + b"cabc.py",
            "inductor/fxgraph/bc/fbckey/0a1b": mark + b"0a1b",
            "inductor/aotautograd/akey/entry": mark + b"entry",
            **triton_files("inductor/triton/0/KEY", mark)}


# ---- torch/_inductor/triton_bundler.py, TritonBundler.read_and_emit

BUNDLED = ("inductor/triton/0/BUNDLED", "triton/BUNDLED")


def triton_bundle(job, mark):
    for directory in BUNDLED:  # torch writes to Triton's own cache if TRITON_CACHE_DIR is set
        temporary = f"{os.path.dirname(directory)}/tmp.{uuid.uuid4()}"
        make(job, temporary)
        for name in (*TRITON_NAMES, "__grp__k.json"):
            in_place(job, f"{temporary}/{name}",
                     triton_group(job, directory) if name.startswith("__grp__") else mark + name.encode())
            yield
        try:
            job("os.replace", job.path(temporary), job.path(directory))
        except OSError as error:
            assert error.errno in (errno.EEXIST, errno.ENOTEMPTY)
        yield


def triton_bundle_files(mark):
    return {path: data for directory in BUNDLED for path, data in triton_files(directory, mark).items()}


# ---- torch/_inductor/codecache.py, _worker_compile_cpp

def inductor_cpp(job, mark):
    make(job, "inductor/cd")
    make(job, "inductor/locks")
    yield
    lock = job("os.open", job.path("inductor/locks/ccd.lock"), os.O_RDWR | os.O_CREAT)
    job("fcntl.flock", lock, fcntl.LOCK_EX)
    if not job.exists("inductor/cd/ccd.main.so"):
        in_place(job, "inductor/cd/ccd.main.so", mark)
    job("fcntl.flock", lock, fcntl.LOCK_UN)
    job("os.close", lock)
    yield


# ---- tilelang/cache/kernel_cache.py, _save_kernel_to_disk

TILELANG = "tilelang/0.1.9/linux-x86_64"
TILELANG_NAMES = ("device_kernel.cu", "host_kernel.cu", "kernel_lib.so", "params.json",
                  "manifest.json")


def tilelang(job, mark):
    staging = f"{TILELANG}/.staging/{'ab' * 32}_{job.pid}_{uuid.uuid4().hex[:8]}"
    final = f"{TILELANG}/kernels/{'ab' * 32}"
    make(job, f"{TILELANG}/kernels")
    make(job, staging)
    yield
    for name in TILELANG_NAMES:
        temporary = f".{name}.{job.pid}_{uuid.uuid4().hex}.tmp"
        yield from renamed(job, staging, name, temporary, mark + name.encode())
    try:
        job("os.rename", job.path(staging), job.path(final))
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        job("shutil.rmtree", job.path(staging))
    yield


def tilelang_files(mark):
    return {f"{TILELANG}/kernels/{'ab' * 32}/{name}": mark + name.encode()
            for name in TILELANG_NAMES}


# ---- torch/utils/cpp_extension.py, _jit_compile with FileBaton; ninja and the linker write in place

EXTENSION = "torch-extensions/py311_cpu/fused"


def torch_extensions(job, mark):
    make(job, EXTENSION)
    yield
    baton = job.path(EXTENSION, "lock")
    job("release", job("hold", baton, os.O_CREAT | os.O_EXCL))
    yield
    for name in ("main.cpp", "build.ninja", "main.o", ".ninja_deps", "fused.so", ".ninja_log"):
        in_place(job, f"{EXTENSION}/{name}", mark + name.encode())
        yield
    job("os.remove", baton)
    yield


def torch_extensions_files(mark):
    return {f"{EXTENSION}/{name}": mark + name.encode() for name in
            ("main.cpp", "build.ninja", "main.o", ".ninja_deps", "fused.so", ".ninja_log")}


# ---- flashinfer/jit/core.py, JitSpec.build_and_load

OPS = "flashinfer/.cache/flashinfer/0.3.1/90a"


def flashinfer(job, mark):
    make(job, f"{OPS}/cached_ops/tmp")
    in_place(job, f"{OPS}/flashinfer_jit.log", b"log")
    yield
    lock = job("os.open", job.path(f"{OPS}/cached_ops/tmp/op.lock"), os.O_RDWR | os.O_CREAT)
    job("fcntl.flock", lock, fcntl.LOCK_EX)
    if not job.exists(f"{OPS}/cached_ops/op/op.so"):
        make(job, f"{OPS}/cached_ops/op")
        for name in ("build.ninja", "op.cuda.o", "op.so", ".ninja_log"):
            in_place(job, f"{OPS}/cached_ops/op/{name}", mark + name.encode())
    job("fcntl.flock", lock, fcntl.LOCK_UN)
    job("os.close", lock)
    yield


def flashinfer_files(mark):
    return {f"{OPS}/cached_ops/op/{name}": mark + name.encode()
            for name in ("build.ninja", "op.cuda.o", "op.so", ".ninja_log")}


# ---- csrc/jit/compiler.hpp, Compiler::build

def deepgemm(job, mark):
    temporary, final = f"deepgemm/tmp/{uuid.uuid4()}", "deepgemm/cache/kernel.gemm.01ab"
    make(job, temporary)
    yield
    for name in ("kernel.cu", "kernel.cubin"):
        in_place(job, f"{temporary}/{name}", mark + name.encode())
        yield
    make(job, "deepgemm/cache")
    try:
        job("os.rename", job.path(temporary), job.path(final))
    except OSError:
        job("shutil.rmtree", job.path(temporary))
    yield


def deepgemm_files(mark):
    return {f"deepgemm/cache/kernel.gemm.01ab/{name}": mark + name.encode()
            for name in ("kernel.cu", "kernel.cubin")}


# ---- vllm/compilation: contains an Inductor and a Triton cache, and an index that is written in place at the end

VLLM = "vllm/torch_compile_cache/a1b2c3d4e5/rank_0_0/backbone"


def vllm(job, mark):
    make(job, f"{VLLM}/inductor_cache/ab")
    yield from renamed(job, f"{VLLM}/inductor_cache/ab", "cab.py", f".{job.pid}.1.tmp", mark)
    in_place(job, f"{VLLM}/vllm_compile_cache.py", mark + b"index")
    yield


def vllm_files(mark):
    return {f"{VLLM}/inductor_cache/ab/cab.py": mark,
            f"{VLLM}/vllm_compile_cache.py": mark + b"index"}


# ---- pip/_internal/network/cache.py, SafeFileCache.set, set_body; wheel_builder.py

RESPONSE = "pip/http-v2/6/8/7/a/0"
WHEEL = "pip/wheels/2a/4b/6c/8d9e"


def pip(job, mark):
    make(job, RESPONSE)
    yield from renamed(job, RESPONSE, "687a0", "687a0x1y2.tmp", mark + b"head")
    yield from renamed(job, RESPONSE, "687a0.body", "687a0.bodyz3.tmp", mark + b"body")
    make(job, WHEEL)
    in_place(job, f"{WHEEL}/six-1.0-py3-none-any.whl", mark + b"wheel")
    yield
    in_place(job, f"{WHEEL}/origin.json", b"{}")
    yield


def pip_files(mark):
    return {f"{RESPONSE}/687a0": mark + b"head", f"{RESPONSE}/687a0.body": mark + b"body",
            f"{WHEEL}/six-1.0-py3-none-any.whl": mark + b"wheel", f"{WHEEL}/origin.json": b"{}"}


# ---- crates/uv-cache/src/lib.rs, Cache::persist

def uv_archive(job, mark):
    """Creates .lock with RENAME_NOREPLACE, and unpacks a wheel into an archive, whose name it returns."""
    name = mark.hex()[:16]
    in_place(job, "uv/.tmpLo12ck", b"")
    job("rename_noreplace", job.path("uv/.tmpLo12ck"), job.path("uv/.lock"))
    make(job, "uv/.tmpAb12Cd")
    in_place(job, "uv/.tmpAb12Cd/six.py", mark)
    in_place(job, "uv/.tmpAb12Cd/Cargo.lock", mark * 1000)
    yield
    make(job, "uv/archive-v0")
    job("os.rename", job.path("uv/.tmpAb12Cd"), job.path("uv/archive-v0", name))
    yield
    return name


def uv(job, mark):
    name = yield from uv_archive(job, mark)
    make(job, "uv/wheels-v6/pypi/six")
    in_place(job, "uv/wheels-v6/pypi/six/.tmpLo34ck", b"")
    job("rename_noreplace", job.path("uv/wheels-v6/pypi/six/.tmpLo34ck"),
        job.path("uv/wheels-v6/pypi/six/1.0.lock"))
    job("os.symlink", f"../../../archive-v0/{name}", job.path("uv/wheels-v6/pypi/six/1.0"))
    yield
    yield from renamed(job, "uv/wheels-v6/pypi/six", "1.0.http", ".tmpHt12tp", mark)


def uv_0_11(job, mark):
    name = yield from uv_archive(job, mark)
    make(job, "uv/wheels-v5/pypi/six")
    temporary = job.path("uv/wheels-v5/pypi/six/.tmpLi12nk")
    job("os.symlink", job.path("uv/archive-v0", name), temporary)
    yield
    job("os.rename", temporary, job.path("uv/wheels-v5/pypi/six/1.0"))
    yield


# ---- ccache: src/storage/local/LocalStorage.cpp, src/AtomicFile.cpp

def ccache(job, mark):
    make(job, "ccache/0/a")
    yield from renamed(job, "ccache/0/a", "bcdefR", "bcdefR.tmp.Xy12Zw", mark + b"result")
    yield from renamed(job, "ccache/0/a", "01234M", "01234M.tmp.Xy12Zw", mark + b"manifest")
    job("os.symlink", "host-1-2", job.path("ccache/0/stats.lock"))
    yield from renamed(job, "ccache/0", "stats", "stats.tmp.Ab12Cd", mark)
    job("os.remove", job.path("ccache/0/stats.lock"))
    yield


# ---- jax/_src/lru_cache.py, LRUCache.put; numba/core/caching.py; cupy/cuda/compiler.py

def jax(job, mark):
    in_place(job, "jax/jit_f-0a1b-cache", mark)
    yield


def jax_limited(job, mark):
    in_place(job, "jax/jit_g-0a1b-cache", mark)
    yield
    in_place(job, "jax/jit_g-0a1b-atime", mark[:8])
    yield


def numba(job, mark):
    directory = "numba/src_0a1b"
    make(job, directory)
    for name in ("m.f-3.py311.nbi", "m.f-3.py311.1.nbc"):
        yield from renamed(job, directory, name, f"{name}.tmp.{uuid.uuid4().hex[:16]}",
                           mark + name.encode())


def cupy(job, mark):
    make(job, "cupy")
    yield from renamed(job, "cupy", "0a1b_2.cubin", "tmpa1b2c3d4", mark)


ALL = (
    Replay("triton", triton, lambda mark: triton_files("triton/KEY3", mark)),
    Replay("triton-2.1", triton_2_1, lambda mark: triton_files("triton/KEY21", mark)),
    Replay("inductor", inductor, inductor_files),
    Replay("triton-bundle", triton_bundle, triton_bundle_files),
    Replay("inductor-c++", inductor_cpp, lambda mark: {"inductor/cd/ccd.main.so": mark}),
    Replay("tilelang", tilelang, tilelang_files),
    Replay("torch-extensions", torch_extensions, torch_extensions_files),
    Replay("flashinfer", flashinfer, flashinfer_files),
    Replay("deepgemm", deepgemm, deepgemm_files),
    Replay("vllm", vllm, vllm_files, early=False),
    Replay("pip", pip, pip_files),
    Replay("ccache", ccache, lambda mark: {"ccache/0/a/bcdefR": mark + b"result",
                                           "ccache/0/a/01234M": mark + b"manifest"}),
    Replay("jax", jax, lambda mark: {"jax/jit_f-0a1b-cache": mark}, early=False),
    Replay("jax-limited", jax_limited, lambda mark: {
        "jax/jit_g-0a1b-cache": mark, "jax/jit_g-0a1b-atime": mark[:8]}, early=False),
    Replay("numba", numba, lambda mark: {
        f"numba/src_0a1b/{name}": mark + name.encode()
        for name in ("m.f-3.py311.nbi", "m.f-3.py311.1.nbc")}, early=False),
    Replay("cupy", cupy, lambda mark: {"cupy/0a1b_2.cubin": mark}),
)
