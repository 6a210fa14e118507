#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""job_list.py PROGRAM [JOBS]: measures the CPU time of `job list` and `job list --json` with JOBS jobs.

Mounts a new store below TMPDIR, and unmounts it at the end. Prints, for each command, the median CPU times of the
client and of the daemon over several runs.
"""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

RUNS = 7
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def daemon_cpu_s(pid):
    """Returns the daemon's CPU time: from schedstat if the kernel has it, otherwise from stat, which counts ticks."""
    tasks = pathlib.Path(f"/proc/{pid}/task")
    try:
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
    except FileNotFoundError:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) * TICK_S


def client_cpu_s(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def start_jobs(mount, count):
    for number in range(count):
        with open(mount / ".cacheshim/control", "r+b", buffering=0) as control:
            request = {"op": "job-start", "job": f"job-{number}", "shared_uids": False, "run": False}
            control.write(json.dumps(request).encode())
            assert json.loads(control.readline())["ok"]


def measure(program, mount, pid, *options):
    client, daemon = [], []
    for _ in range(RUNS):
        before = daemon_cpu_s(pid)
        client.append(client_cpu_s([program, "job", "list", *options, "--mount", mount]))
        daemon.append(daemon_cpu_s(pid) - before)
    return statistics.median(client) * 1e3, statistics.median(daemon) * 1e3


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    with tempfile.TemporaryDirectory(prefix="cacheshim-bench-") as scratch:
        store, mount = pathlib.Path(scratch, "store"), pathlib.Path(scratch, "mnt")
        store.mkdir()
        mount.mkdir()
        subprocess.run([program, "mount", "--store", store, mount], check=True)
        try:
            pid = json.loads((mount / ".cacheshim/status").read_text())["pid"]
            start_jobs(mount, count)
            for options in ((), ("--json",)):
                client, daemon = measure(program, mount, pid, *options)
                print(f"job list {' '.join(options):6} of {count} jobs: client {client:.1f} ms, "
                      f"daemon {daemon:.1f} ms of CPU")
        finally:
            # With this many jobs, `unmount` may stop waiting before the daemon has exited.
            subprocess.run([program, "unmount", mount], check=False)


if __name__ == "__main__":
    main()
