# SPDX-License-Identifier: Apache-2.0
"""A job that uses its cache for a while, and measures each operation. Prints a JSON object with a list of times in µs
for each kind of operation.

victim.py MOUNT PREFIX SECONDS: reads entries of the base, KEY0 to KEY99, and publishes entries whose names begin with
PREFIX. The first WARM_UP_S seconds are not measured: some defenses begin only after an attack has succeeded once.
"""

import json
import os
import random
import sys
import time

HITS = 50  # the number of hits per published entry
ENTRIES = 100
FILES = 4
WARM_UP_S = 4


def hit(triton):
    path = f"{triton}/KEY{random.randrange(ENTRIES)}/k0.cubin"
    fd = os.open(path, os.O_RDONLY)
    os.read(fd, 1 << 16)
    os.close(fd)


def publish(entry):
    """Looks the entry up and builds it as Triton does. The last rmdir returns only when the entry is in the base."""
    os.makedirs(entry, exist_ok=True)
    os.path.exists(f"{entry}/__grp__k.json")
    children = {f"k{number}.cubin": f"{entry}/k{number}.cubin" for number in range(FILES)}
    for name in children:
        put(entry, name, os.urandom(4096))
    put(entry, "__grp__k.json", json.dumps({"child_paths": children}).encode())


def put(entry, name, data):
    staging = f"{entry}/tmp.pid_{os.getpid()}"
    os.mkdir(staging)
    with open(f"{staging}/{name}", "wb") as file:
        file.write(data)
    os.rename(f"{staging}/{name}", f"{entry}/{name}")
    os.rmdir(staging)


def end_job(control, job):
    fd = os.open(control, os.O_RDWR)
    os.write(fd, json.dumps({"op": "job-end", "job": job, "outcome": "success"}).encode())
    answer = b""
    while chunk := os.read(fd, 1 << 16):
        answer += chunk
    os.close(fd)
    assert json.loads(answer.splitlines()[-1])["ok"], answer


def main():
    mount, prefix, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    times = {"hit": [], "publish": [], "job end": []}

    def measure(kind, call, *args):
        began = time.monotonic_ns()
        call(*args)
        if time.monotonic() > start:
            times[kind].append((time.monotonic_ns() - began) / 1000)

    start = time.monotonic() + WARM_UP_S
    deadline = start + seconds
    number = 0
    while time.monotonic() < deadline:
        for _ in range(HITS):
            measure("hit", hit, f"{mount}/triton")
        measure("publish", publish, f"{mount}/triton/{prefix}{number}")
        measure("job end", end_job, f"{mount}/.cacheshim/control", os.environ["CACHESHIM_JOB"])
        number += 1
    json.dump(times, sys.stdout)


main()
