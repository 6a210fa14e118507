#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much a malicious user slows down another user, the victim. Times the victim's operations during each
attack. For comparison, times them beside a harmless neighbor that uses as much CPU time as the attack and the daemon's
work for it together. Needs root, and creates its own mounts. The store is on a journaled ext4 in memory, because an
ext4 without a journal inspects each recently freed inode before it creates a file.

bench/hostile/main.py [--seconds N] [--rounds N] [--attacks A,B] [--json]; uses build/dist.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/lib"))

import jobs  # noqa: E402
import mounts  # noqa: E402

# Uids that no other process uses: after each attack, all processes of ATTACKER are killed.
ATTACKER, VICTIM = 25001, 25002
MODULES = ("bench/hostile/attacks.py", "bench/hostile/victim.py", "tests/hostile/agent_hostile.py",
           "tests/hostile/agent_limits.py")
ATTACKS = ("notifications", "holes", "limits", "leases")
MEDIAN_BAR, P99_BAR = 2, 3
ENTRIES = 100
WARM_UP_S = 1
DISK_MIB = 4096


class Ground:
    """A mounted store with entries; runs the victim and the processes beside it."""

    def __init__(self, scratch):
        self._scratch = scratch
        store, point = scratch / "store", scratch / "mnt"
        for number in range(ENTRIES):
            entry = store / f"triton/KEY{number}"
            entry.mkdir(parents=True)
            (entry / "k0.cubin").write_bytes(os.urandom(8192))
            children = {"k0.cubin": f"{point}/triton/KEY{number}/k0.cubin"}
            (entry / "__grp__k.json").write_text(json.dumps({"child_paths": children}))
        point.mkdir()
        for module in MODULES:
            (scratch / pathlib.Path(module).name).write_bytes((REPOSITORY / module).read_bytes())
        config = scratch / "cacheshim.toml"
        config.write_text('flight_timeout = "1s"\n')  # how long others wait for a user's unfinished build
        self.mount = mounts.Mount(store, point).mount("--config", config)
        self._runs = 0

    def run_victim(self, seconds):
        """Runs the victim. Returns {kind of operation: [times in µs]}."""
        done = jobs.as_user(VICTIM, ["/usr/bin/python3", "-B", self._scratch / "victim.py", self.mount.path,
                                     self.prefix(), seconds], job="victim", timeout=seconds + 600)
        self._runs += 1
        if done.returncode != 0:
            raise SystemExit(f"bench hostile: the victim failed: {done.stderr}")
        return json.loads(done.stdout)

    def prefix(self):
        """Returns the name prefix of the entries that the next victim will publish."""
        return f"V{self._runs}-"

    @contextlib.contextmanager
    def beside(self, *words):
        """Runs a function of attacks.py; yields a function that returns the CPU time of the attacker's processes, in
        seconds."""
        process = subprocess.Popen(["/usr/bin/python3", "-B", self._scratch / "attacks.py", *map(str, words)],
                                   user=ATTACKER, group=ATTACKER, extra_groups=[], start_new_session=True,
                                   env=jobs.environment("hostile"), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL)
        try:
            time.sleep(WARM_UP_S)
            yield lambda: sum(map(cpu_seconds, processes_of(ATTACKER)))
            if process.poll() is not None:
                raise SystemExit(f"bench hostile: attacks.py {words[0]} ended with {process.returncode}")
        finally:
            for pid in processes_of(ATTACKER):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            jobs.wait_until(lambda: not processes_of(ATTACKER), 60, "the end of the attack")


def processes_of(uid):
    """Returns the processes of a user, without zombies."""
    found = []
    for directory in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (directory / "status").read_text()
            if f"\nUid:\t{uid}\t" in status and "\nState:\tZ" not in status:
                found.append(int(directory.name))
    return found


def cpu_seconds(pid):
    """Returns the CPU time of a process and of its ended children; 0 if the process has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def undisturbed(ground, seconds):
    """Runs the victim alone. Returns the number of cores that the daemon uses, divided by the number of entries that
    the victim publishes in `seconds`."""
    daemon = ground.mount.daemon_pid()
    began, before = time.monotonic(), cpu_seconds(daemon)
    times = ground.run_victim(seconds)
    return (cpu_seconds(daemon) - before) / (time.monotonic() - began) / len(times["publish"])


def attack(ground, name, seconds, cores_per_entry):
    """Returns the victim's times beside an attack, and how many cores the attack and the daemon's work for it used.
    `cores_per_entry`: the result of undisturbed()."""
    daemon = ground.mount.daemon_pid()
    with ground.beside(name, ground.mount.path, ground.prefix()) as used:
        began, before = time.monotonic(), used() + cpu_seconds(daemon)
        times = ground.run_victim(seconds)
        cores = (used() + cpu_seconds(daemon) - before) / (time.monotonic() - began)
    return times, max(0.0, cores - cores_per_entry * len(times["publish"]))


def neighbor(ground, cores, seconds):
    count = max(1, math.ceil(cores))
    with ground.beside("burn", *[f"{cores / count:.2f}"] * count):
        return ground.run_victim(seconds)


def p99(values):
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


def add(total, times):
    for kind, values in times.items():
        total.setdefault(kind, []).extend(values)


def measure(ground, name, seconds, rounds):
    cores_per_entry = undisturbed(ground, seconds)
    beside_attack, beside_neighbor, shares = {}, {}, []
    for _ in range(rounds):
        times, cores = attack(ground, name, seconds, cores_per_entry)
        shares.append(cores)
        add(beside_attack, times)
        add(beside_neighbor, neighbor(ground, cores, seconds))
    rows = []
    for kind, attacked in beside_attack.items():
        usual = beside_neighbor[kind]
        row = {"attack": name, "operation": kind, "cores": round(statistics.mean(shares), 2), "count": len(attacked)}
        for label, value in (("median", statistics.median), ("p99", p99)):
            row[label] = {"neighbor": round(value(usual), 1), "attack": round(value(attacked), 1),
                          "ratio": round(value(attacked) / value(usual), 2)}
        row["worst"] = {"neighbor": round(max(usual), 1), "attack": round(max(attacked), 1)}
        row["ok"] = row["median"]["ratio"] <= MEDIAN_BAR and row["p99"]["ratio"] <= P99_BAR
        rows.append(row)
    return rows


def show(row):
    def cell(label):
        return "{neighbor:>9.1f} {attack:>9.1f} {ratio:>6.2f}".format(**row[label])
    print(f"{row['attack']:14} {row['operation']:8} {row['cores']:5.2f} {row['count']:6}  {cell('median')}  "
          f"{cell('p99')}  {row['worst']['neighbor']:>10.1f} {row['worst']['attack']:>10.1f}  "
          f"{'yes' if row['ok'] else 'NO'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=int, default=10, help="the length of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    unknown = set(options.attacks.split(",")) - set(ATTACKS)
    if unknown:
        parser.error(f"unknown attack '{min(unknown)}'; known: {', '.join(ATTACKS)}")
    mounts.enter_private_mount_namespace()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="cacheshim-bench-", dir="/tmp"))
    scratch.chmod(0o755)
    mounts.let_everybody_mount(scratch)
    watchdog = mounts.Watchdog(scratch)
    rows = []
    try:
        memory, disk = scratch / "memory", scratch / "disk"
        memory.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", memory], check=True)
        mounts.mount_ext4(memory / "image", disk, DISK_MIB)
        if not options.json:
            print("Times in µs beside a neighbor, and beside an attack that uses as much CPU. The bar: the median at most "
                  f"{MEDIAN_BAR} x, the p99 at most {P99_BAR} x.\n\n"
                  "attack         operation cores  count   median: neighbor, attack      p99: neighbor, attack"
                  "        worst: neighbor, attack  within the bar")
        for name in options.attacks.split(","):
            area = disk / name
            area.mkdir()
            ground = Ground(area)
            try:
                for row in measure(ground, name, options.seconds, options.rounds):
                    rows.append(row)
                    if not options.json:
                        show(row)
            finally:
                ground.mount.close()
        if options.json:
            print(json.dumps(rows, indent=1))
    finally:
        mounts.remove(scratch)
        watchdog.close()
    return 0


sys.exit(main())
