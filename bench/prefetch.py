#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much time `job start --prefetch` saves. Times how long a job on a machine with an empty store takes to
open its entries: if the daemon fetches each entry on demand, and if `job start` has fetched all of them as one pack.
The remote tier is a directory on this machine; with a distant engine, each fetch takes a round trip longer. Needs root,
and creates its own mounts.

bench/prefetch.py --area DIRECTORY [--entries N] [--bytes N] [--rounds N]; uses build/dist.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests/lib"))

import jobs  # noqa: E402
import mounts  # noqa: E402

UID = 25001
NAME = "stub.so"  # of class flight in the profile triton
DEADLINE_S = 120
# Creates each entry's directory and opens its file, as Triton does. Prints the seconds that this took.
VISIT = f"""
import os, sys, time
began = time.monotonic()
for number in range(int(sys.argv[2])):
    entry = f"{{sys.argv[1]}}/triton/KEY{{number}}"
    os.makedirs(entry, exist_ok=True)
    open(f"{{entry}}/{NAME}", "rb").close()
print(time.monotonic() - began)
"""


class Machine:
    """A mounted store with a remote tier below `scratch`."""

    def __init__(self, scratch, name, entries=0, size=0):
        self._store = scratch / name
        self._store.mkdir()
        for number in range(entries):
            entry = self._store / f"triton/KEY{number}"
            entry.mkdir(parents=True)
            (entry / NAME).write_bytes(os.urandom(size))
        point = scratch / f"mnt-{name}"
        point.mkdir()
        self.mount = mounts.Mount(self._store, point).mount("--config", scratch / "cacheshim.toml")
        jobs.wait_until(lambda: self.mount.status()["remote"]["used"], DEADLINE_S, "the use of the tier")

    def start(self, job, *words):
        """Starts a job. Returns how many seconds that took."""
        began = time.monotonic()
        self.mount.cli("job", "start", job, "--uid", UID, *words)
        return time.monotonic() - began

    def visit(self, job, entries):
        done = jobs.as_user(UID, ["/usr/bin/python3", "-c", VISIT, self.mount.path, entries], job=job)
        if done.returncode != 0:
            raise SystemExit(f"bench prefetch: {done.stderr}")
        return float(done.stdout)


def make_pack(scratch, entries, size):
    """Fills the tier with the entries, and with the pack of a job that has used them."""
    one = Machine(scratch, "first", entries, size)
    try:
        config = ["--config", scratch / "cacheshim.toml"]
        pushed = mounts.run(mounts.PROGRAM, "remote", "push", *config, "--store", scratch / "first")
        if pushed.returncode != 0:
            raise SystemExit(f"bench prefetch: {pushed.stderr}")
        one.start("1", "--prefetch", "bench")
        one.visit("1", entries)
        one.mount.end_job("1")
        jobs.wait_until(lambda: one.mount.status()["remote"]["unsent"] == 0, DEADLINE_S, "the end of the queue")
    finally:
        one.mount.unmount()


def measure(scratch, name, entries, *words):
    """Returns the seconds that `job start` with these options takes on a new machine, and those of the next visit."""
    machine = Machine(scratch, name)
    try:
        start = machine.start("2", *words)
        visit = machine.visit("2", entries)
        if machine.mount.stats()["remote_prefetched"] != (entries if words else 0):
            raise SystemExit("bench prefetch: the pack did not have all entries")
        return start, visit
    finally:
        machine.mount.unmount()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--area", required=True, help="a directory for the stores")
    parser.add_argument("--entries", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.area) as directory:
        scratch = pathlib.Path(directory)
        scratch.chmod(0o755)
        (scratch / "tier").mkdir()
        (scratch / "tier").chmod(0o777)  # for the daemon's helper, which runs as nobody
        mounts.run(mounts.PROGRAM, "remote", "keygen", scratch / "key")
        (scratch / "cacheshim.toml").write_text(
            f'[remote]\nurl = "file://{scratch}/tier"\nsign_with = "{scratch}/key"\nwait_ms = 5000\n')
        make_pack(scratch, options.entries, options.bytes)
        demand, start, after = [], [], []
        for number in range(options.rounds):
            demand.append(measure(scratch, f"demand-{number}", options.entries)[1])
            for times, time_s in zip((start, after), measure(scratch, f"prefetch-{number}", options.entries,
                                                             "--prefetch", "bench")):
                times.append(time_s)
    demand, start, after = (statistics.median(times) for times in (demand, start, after))
    print(f"{options.entries} entries of {options.bytes} bytes, an empty store, medians of {options.rounds} rounds:")
    print(f"  fetched on demand      the job waits {demand:.2f} s")
    print(f"  fetched before it      the job waits {after:.2f} s, after {start:.2f} s of job start")


if __name__ == "__main__":
    main()
