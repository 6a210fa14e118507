# SPDX-License-Identifier: Apache-2.0
"""Simulates a program with one Triton kernel: looks the kernel up in the cache, and builds it if it is missing. Makes
the system calls that Triton makes."""

import json
import os

CACHE = os.environ.get("TRITON_CACHE_DIR") or os.path.expanduser("~/.triton/cache")
ENTRY = os.path.join(CACHE, "KEY")
GROUP = os.path.join(ENTRY, "__grp__k.json")


def put(name, data):
    """Writes a file as triton.runtime.cache does: in a temporary directory, from which it renames the file."""
    temporary = os.path.join(ENTRY, f"tmp.pid_{os.getpid()}_1")
    os.makedirs(temporary)
    with open(os.path.join(temporary, name), "w", encoding="utf-8") as file:
        file.write(data)
    os.replace(os.path.join(temporary, name), os.path.join(ENTRY, name))
    os.rmdir(temporary)


if os.path.exists(GROUP):
    with open(GROUP, encoding="utf-8") as group:
        for path in json.load(group)["child_paths"].values():
            with open(path, encoding="utf-8") as child:
                child.read()
    print("hit")
else:
    os.makedirs(ENTRY, exist_ok=True)
    put("k.cubin", "code")
    put(os.path.basename(GROUP), json.dumps(
        {"child_paths": {"k.cubin": os.path.join(ENTRY, "k.cubin")}}))
    print("built")
