# SPDX-License-Identifier: Apache-2.0
"""A process that compiles kernels with Triton's own cache manager, and a stub in place of the compiler.

    compiling_process.py CACHE_PY CACHE ROUND KERNELS

CACHE_PY is the file triton/runtime/cache.py of an installed Triton, because importing all of Triton takes too long on a
node. The process prints "ready", and begins when it reads a line. At the end, it prints a JSON object: how many kernels
it built, and its errors. It calls the cache manager as triton.compile() and CompiledKernel do in Triton 3.9.
"""

import hashlib
import importlib.util
import json
import pathlib
import sys
import time
import types

STAGE_S = 0.01  # the time that the stub takes for each of a kernel's files
TEXTS, BINARY = ["kernel.ttir", "kernel.ttgir", "kernel.llir", "kernel.ptx"], "kernel.cubin"
METADATA = "kernel.json"


def load_cache_manager(path, directory):
    """Loads the file `path` with a stub in place of the rest of Triton; returns its function get_cache_manager()."""
    triton = types.ModuleType("triton")
    triton.__version__ = "stub"
    triton.knobs = types.SimpleNamespace(cache=types.SimpleNamespace(dir=directory, manager_class=None))
    sys.modules["triton"] = triton
    spec = importlib.util.spec_from_file_location("triton_cache", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_cache_manager


def compile_kernel(manager):
    """Writes the kernel's files unless the cache has them. Returns {name: path}, and whether it wrote the files."""
    group = manager.get_group(METADATA) or {}
    if METADATA in group:
        return group, False
    for name in [*TEXTS, BINARY]:
        time.sleep(STAGE_S)
        data = f"{manager.key} {name}"
        group[name] = manager.put(data.encode() if name == BINARY else data, name)
    group[METADATA] = manager.put(json.dumps({"name": manager.key}), METADATA, binary=False)
    manager.put_group(METADATA, group)
    return group, True


def read_kernel(manager, group):
    """Reads all files of a kernel. Raises KeyError or OSError if a file is missing, and ValueError if its content
    differs from what the builder wrote."""
    if json.loads(pathlib.Path(group[METADATA]).read_text()) != {"name": manager.key}:
        raise ValueError("wrong metadata")
    for name in [*TEXTS, BINARY]:
        if pathlib.Path(group[name]).read_text() != f"{manager.key} {name}":
            raise ValueError(f"wrong content of {name}")


def main():
    path, directory, number, kernels = sys.argv[1:]
    get_cache_manager = load_cache_manager(path, directory)
    built, errors = 0, []
    print("ready", flush=True)
    sys.stdin.readline()
    for kernel in range(int(kernels)):
        try:
            manager = get_cache_manager(hashlib.sha256(f"{number} {kernel}".encode()).hexdigest())
            group, is_built = compile_kernel(manager)
            built += is_built
            read_kernel(manager, group)
        except (OSError, ValueError, KeyError) as error:
            errors.append(f"kernel {kernel}: {error!r}")
    print(json.dumps({"built": built, "errors": errors}))


if __name__ == "__main__":
    main()
