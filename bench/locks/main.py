#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares locks through a mount with locks in a plain directory of the same file system, and times `cacheshim job
list` with many jobs. Needs root, and creates its own mounts.

bench/locks/main.py [--rounds N] [--waiters N] [--jobs N] [--json]; uses build/dist and build/bench/lock_bench.
"""

import argparse
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/lib"))

import mounts  # noqa: E402

BENCH = REPOSITORY / "build/bench/lock_bench"
BARS = {"pair": 25, "handover": 150, "handover from a raw holder": 6000, "idle CPU": 3,
        "cacheshim job list": 30_000}
LISTS = 30


def measure(*words):
    result = subprocess.run([str(word) for word in (BENCH, *words)], stdout=subprocess.PIPE, text=True,
                            check=True, env={**os.environ, "CACHESHIM_JOB": "bench"})
    return json.loads(result.stdout)


def run(scratch, rounds, waiters, jobs):
    store, point = scratch / "store", scratch / "mnt"
    native = scratch / "native"
    for directory in (store / "triton/KEY", point, native):
        directory.mkdir(parents=True)
    mount = mounts.Mount(store, point).mount()
    try:
        lock, raw = point / "triton/KEY/lock", store / "triton/KEY/lock"
        crowd = ("--waiters", waiters)
        return {
            "pair": (measure("pair", native / "lock", "--rounds", rounds * 10),
                     measure("pair", lock, "--rounds", rounds * 10)),
            "pair of an ordinary file": (None, measure("pair", point / "triton/file",
                                                       "--rounds", rounds * 10)),
            "handover": (measure("handover", native / "lock", native / "lock", "--rounds", rounds),
                         measure("handover", lock, lock, "--rounds", rounds)),
            "handover from a raw holder": (None, measure("handover", lock, raw, "--rounds", rounds)),
            "crowd": (measure("crowd", native / "lock", native / "file", *crowd),
                      measure("crowd", lock, point / "triton/file", *crowd,
                              "--pid", mount.daemon_pid())),
            "crowd behind a raw holder": (None, crowd_behind_raw(mount, raw, lock, waiters)),
            "crowd of nobody": (None, {"cpu": idle_share(mount)}),
            "cacheshim job list": (None, list_jobs(mount, jobs)),
        } | refused_of(native, point, rounds * 10)
    finally:
        mount.close()


def crowd_behind_raw(mount, raw, lock, waiters):
    """Returns the daemon's CPU use in percent of a core while many threads wait for a lock that the daemon polls."""
    holder = open(raw, "rb")
    fcntl.flock(holder, fcntl.LOCK_EX)
    before = mount.stats()["lock_waits"]
    code = ("import fcntl, sys, threading\n"
            "def one():\n    f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX)\n"
            f"threads = [threading.Thread(target=one) for _ in range({waiters})]\n"
            "[t.start() for t in threads]; [t.join() for t in threads]")
    child = subprocess.Popen([sys.executable, "-c", code, str(lock)],
                             env={**os.environ, "CACHESHIM_JOB": "bench"})
    while mount.stats()["lock_waits"] < before + waiters:
        time.sleep(0.05)
    used = idle_share(mount)
    holder.close()
    child.wait()
    return {"cpu": used}


def refused_of(native, point, rounds):
    """Returns the times of refused lock requests, natively and through the mount, for a holder without other open
    descriptors and for one with 10,000."""
    found = {}
    for descriptors in (0, 10_000):
        sides = [measure("refused", directory / "held", directory / "made", "--rounds", rounds,
                         "--descriptors", descriptors) for directory in (native, point / "triton")]
        for call in sides[0]:
            found[f"{call}, holder has {descriptors}"] = (sides[0][call], sides[1][call])
    return found


def list_jobs(mount, jobs):
    """Returns the times of `cacheshim job list` in µs, including the program's start, in a mount with `jobs` jobs."""
    for number in range(jobs):
        fd = os.open(mount.path / ".cacheshim/control", os.O_RDWR)
        os.write(fd, json.dumps({"op": "job-start", "job": f"job-{number}"}).encode())
        os.read(fd, 1 << 16)
        os.close(fd)
    times = []
    for _ in range(LISTS):
        began = time.monotonic()
        subprocess.run([mounts.PROGRAM, "job", "list", "--mount", mount.path], check=True,
                       stdout=subprocess.DEVNULL)
        times.append((time.monotonic() - began) * 1e6)
    times.sort()
    return {"median": times[LISTS // 2], "min": times[0], "p99": times[-1]}


def idle_share(mount):
    """Returns the daemon's CPU use in percent of a core. With fanotify, the daemon also receives the events of other
    files on the same file system: compare the result with the share while no process waits for a lock."""
    time.sleep(1)
    pid, span = mount.daemon_pid(), 5
    began = ticks(pid)
    time.sleep(span)
    return (ticks(pid) - began) / os.sysconf("SC_CLK_TCK") / span * 100


def ticks(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def show(results):
    print(f"{'µs':<52}{'native p50':>12}{'mount p50':>12}{'min':>10}{'p99':>10}{'bar':>8}")
    for name, (native, mount) in results.items():
        if not name.startswith("crowd"):
            beside = f"{native['median']:.1f}" if native else "-"
            print(f"{name:<52}{beside:>12}{mount['median']:>12.1f}{mount['min']:>10.1f}"
                  f"{mount['p99']:>10.1f}{BARS.get(name, '-'):>8}")
            continue
        for row in ("alone", "beside_waiters"):
            for call in ("read", "write"):
                if row in mount:
                    print(f"{f'{call} {row}':<52}{native[row][call]['median']:>12.1f}"
                          f"{mount[row][call]['median']:>12.1f}{mount[row][call]['min']:>10.1f}"
                          f"{mount[row][call]['p99']:>10.1f}{'-':>8}")
        if "each_in_turn" in mount:
            print(f"{'each waiter in turn':<52}{native['each_in_turn']:>12.1f}"
                  f"{mount['each_in_turn']:>12.1f}")
        print(f"{f'idle CPU, {name}':<52}{'-':>12}{mount['cpu']:>11.1f}%{'':>20}{BARS['idle CPU']:>7}%")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--waiters", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    mounts.enter_private_mount_namespace()
    with tempfile.TemporaryDirectory(prefix="cacheshim-locks-") as scratch:
        # Use a separate file system: on a shared one, changes by other programs would cost the daemon CPU time.
        subprocess.run(["mount", "-t", "tmpfs", "none", scratch], check=True)
        try:
            results = run(pathlib.Path(scratch), arguments.rounds, arguments.waiters,
                          arguments.jobs)
        finally:
            subprocess.run(["umount", "-l", scratch], check=True)
    print(json.dumps(results)) if arguments.json else show(results)


if __name__ == "__main__":
    main()
