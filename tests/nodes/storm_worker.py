# SPDX-License-Identifier: Apache-2.0
"""One process of a storm: builds the kernels that its cache lacks, as Triton 3.x does, with a stub in place of the
compiler.

    storm_worker.py LIB CACHE KERNELS SEED START

LIB is the directory of agent_caches.py. The process begins at the time START, in seconds since 1970. Prints a JSON
object with the numbers of the kernels that it has built, and its errors.
"""

import json
import os
import random
import sys
import time

COMPILE_S = 0.05
FILES = [f"kernel.{kind}" for kind in ("ttir", "ttgir", "llir", "ptx", "cubin", "json")]


def use_kernel(cache, number, put):
    """Returns whether the kernel had to be built. Raises ValueError if its files are not those of one build."""
    entry = os.path.join(cache, f"KEY{number:04}")
    os.makedirs(entry, exist_ok=True)
    group = os.path.join(entry, "__grp__kernel.json")
    is_built = not os.path.exists(group)
    if is_built:
        time.sleep(COMPILE_S)
        for name in FILES:
            put(entry, name, f"{os.uname().nodename} {os.getpid()} {number}".encode())
        children = {name: os.path.join(entry, name) for name in FILES}
        put(entry, "__grp__kernel.json", json.dumps({"child_paths": children}).encode())
    with open(group, encoding="utf-8") as file:
        children = json.load(file)["child_paths"]
    texts = set()
    for path in children.values():
        with open(path, encoding="utf-8") as file:
            texts.add(file.read())
    if len(texts) != 1 or not texts.pop().endswith(f" {number}"):
        raise ValueError(f"kernel {number} is of several builds")
    return is_built


def main():
    lib, cache, kernels, seed, start = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    sys.path.insert(0, lib)
    import agent_caches
    built, errors = [], []
    time.sleep(max(0.0, start - time.time()))
    for number in random.Random(seed).sample(range(kernels), kernels):
        try:
            if use_kernel(cache, number, agent_caches.triton_put):
                built.append(number)
        except (OSError, ValueError) as error:
            errors.append(f"kernel {number}: {error!r}")
    print(json.dumps({"built": built, "errors": errors}))


if __name__ == "__main__":
    main()
