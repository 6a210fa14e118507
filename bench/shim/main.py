#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the preloaded library: for calls that do not concern caches, for starting processes, and for a
warm start of many Triton kernels, compared with other ways to share a cache. Needs root, and creates its own mounts.

bench/shim/main.py [--rounds N] [--kernels N] [--no-triton]; uses build/dist, build/bench/shim_bench and
build/venv/triton (`scripts/bench library` builds them).
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/lib"))

import mounts  # noqa: E402

BENCH = REPOSITORY / "build/bench/shim_bench"
LIBRARY = REPOSITORY / "build/dist/lib/libcacheshim.so"
TRITON = REPOSITORY / "build/venv/triton/bin/python"
WORKER = REPOSITORY / "tests/storm/worker.py"
JOB = "bench"


def environment(mount=None, **more):
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8", **more}
    if mount is not None:
        env |= {"LD_PRELOAD": str(LIBRARY), "CACHESHIM_MOUNT": str(mount.path), "CACHESHIM_JOB": JOB}
    return env


def run_json(command, env):
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True,
                          input="\n")
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1].removeprefix("REPORT "))


def small_costs(mount, rounds):
    """Prints three columns for each cost: the median without the library, the value with it, and the median of the
    differences between consecutive measurements without and with it. The value with the library is the sum of the other
    two columns."""
    rows = {
        "foreign open, ns": (["calls", "/etc/passwd"], "open", 10),
        "foreign stat, ns": (["calls", "/etc/passwd"], "stat", None),
        "start of /bin/true, wall µs": (["start", 200, "/bin/true"], "wall", 300),
        "start of /bin/true, CPU µs": (["start", 200, "/bin/true"], "cpu", None),
        "start of python3 -c pass, CPU µs": (["start", 20, "/usr/bin/python3", "-Ic", "pass"], "cpu",
                                             None),
    }
    pairs = {name: [] for name in rows}
    for _ in range(rounds):
        known = {}
        for name, (words, key, _) in rows.items():
            for env in (environment(), environment(mount)):
                where = (str(words), "LD_PRELOAD" in env)
                if where not in known:
                    known[where] = run_json([BENCH, *words], env)
            pairs[name].append((known[str(words), False][key], known[str(words), True][key]))
    for name, values in pairs.items():
        without = statistics.median(a for a, _ in values)
        added = statistics.median(b - a for a, b in values)
        bar = rows[name][2]
        print(f"{name:36} {without:10.1f} {without + added:10.1f} {added:+9.1f}"
              + (f"   at most +{bar}: {'met' if added <= bar else 'NOT met'}" if bar else ""))


def warm_start(env, kernels):
    report = run_json([TRITON, "-B", WORKER, "--kernels", kernels], env)
    assert not report["errors"] and report["hits"] == kernels, report
    return report["wall"], report["cpu"]


@contextlib.contextmanager
def peers(scratch, base):
    """Yields {name: directory} of the other ways to share the cache."""
    points = []

    def point(name):
        for part in ("upper", "work", "mnt"):
            (scratch / name / part).mkdir(parents=True)
        points.append(scratch / name / "mnt")
        return scratch / name
    directories = {}
    try:
        directory = point("overlayfs")
        options = f"lowerdir={base},upperdir={directory}/upper,workdir={directory}/work"
        # A separate file system, because some file systems cannot hold an overlay's upper directory.
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
        for part in ("upper", "work", "mnt"):
            (directory / part).mkdir()
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, directory / "mnt"], check=True)
        directories["kernel overlayfs"] = directory / "mnt"
        if shutil.which("fuse-overlayfs"):
            directory = point("fuse-overlayfs")
            options = f"lowerdir={base},upperdir={directory}/upper,workdir={directory}/work"
            subprocess.run(["fuse-overlayfs", "-o", options, directory / "mnt"], check=True)
            directories["fuse-overlayfs"] = directory / "mnt"
        yield directories
    finally:
        for directory in points:
            subprocess.run(["umount", "-l", directory], stderr=subprocess.DEVNULL, check=False)
            subprocess.run(["umount", "-l", directory.parent], stderr=subprocess.DEVNULL, check=False)


def triton(mount, scratch, rounds, kernels):
    base = mount.store / "triton"
    cold = environment(TRITON_CACHE_DIR=str(base))
    run_json([TRITON, "-B", WORKER, "--kernels", kernels], cold)
    with peers(scratch, base) as directories:
        ways = {"plain directory": cold, "ours, preloaded": environment(mount),
                "ours, mount alone": environment(TRITON_CACHE_DIR=str(mount.path / "triton"))}
        ways |= {name: environment(TRITON_CACHE_DIR=str(directory)) for name, directory in directories.items()}
        times = {name: [] for name in ways}
        for _ in range(rounds):
            for name, env in ways.items():
                times[name].append(warm_start(env, kernels))
    plain = times["plain directory"]
    print(f"\n{kernels} warm Triton kernels in one process (the time of the loop):")
    for name, values in times.items():
        wall, cpu = (statistics.median(v[i] / p[i] for v, p in zip(values, plain)) for i in (0, 1))
        seconds = statistics.median(v[0] for v in values)
        bar = f"   at most 1.05: {'met' if wall <= 1.05 else 'NOT met'}" if "preloaded" in name else ""
        print(f"{name:20} {seconds:8.3f} s   × {wall:.2f} wall   × {cpu:.2f} CPU{bar}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--no-triton", action="store_true")
    arguments = parser.parse_args()
    # When this process exits for any reason, the kernel removes its mounts together with its private mount namespace.
    if os.environ.get("CACHESHIM_BENCH_ALONE") is None:
        os.execvpe("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, "-B",
                               *sys.argv], {**os.environ, "CACHESHIM_BENCH_ALONE": "1"})
    with tempfile.TemporaryDirectory(prefix="cacheshim-bench-") as directory:
        scratch = pathlib.Path(directory)
        store, point = scratch / "store", scratch / "mnt"
        store.mkdir()
        point.mkdir()
        mount = mounts.Mount(store, point).mount()
        try:
            print(f"{'':36} {'without':>10} {'with':>10} {'added':>9}")
            small_costs(mount, arguments.rounds)
            if not arguments.no_triton:
                triton(mount, scratch, arguments.rounds, arguments.kernels)
        finally:
            mount.close()


if __name__ == "__main__":
    main()
