# SPDX-License-Identifier: Apache-2.0
"""Four users make random system calls on a mount. FUZZ_SECONDS sets the duration, and FUZZ_SEED selects the calls."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time

import mounts
import pytest
from jobs import environment, state_of, threads, wait_until

ATTACKER = mounts.REPOSITORY / "build/tests/hostile/attacker/attacker"
SECONDS = int(os.environ.get("FUZZ_SECONDS", "1800"))
SEED = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(1 << 31)))
# The users, and the jobs in which each user's processes run, in turn ("-": without a job). "team" admits several users.
# 20001 and 20003 may publish.
USERS = {20001: ["team", "one", "-"], 20002: ["team", "-", "two"], 20003: ["one", "team", "three"],
         20004: ["-", "uid-20001", "x y", "two"]}
ATTACKERS_PER_USER = 2
LONGEST_COMMAND_S = 60
END_S = 60
CONFIG = """
job_idle = "2s"
flight_timeout = "1s"
[publish]
allow = { users = [20001, 20003] }
[gc]
max_size = "150K"
min_age = "0s"
interval = "1s"
"""
REPORTS = ("Sanitizer", "runtime error", "lock order")


def fill(store):
    """Creates some entries in the base, as jobs would publish them."""
    for key in range(4):
        entry = store / f"triton/KEY{key}"
        entry.mkdir(parents=True, exist_ok=True)
        for name in ("k.cubin", "k.json", "__grp__k.json"):
            (entry / name).write_text("{}")
    for directory in ("other/a/b", "inductor/a"):
        (store / directory).mkdir(parents=True, exist_ok=True)
        (store / directory / "c").write_bytes(b"c" * 100_000)


class Daemon:
    """A daemon in the foreground: its log contains the reports of the sanitizers."""

    def __init__(self, scratch):
        self.store, self.point, self.log = scratch / "store", scratch / "mnt", scratch / "daemon.log"
        config = scratch / "config.toml"
        config.write_text(CONFIG)
        self.point.mkdir()
        environment_of_daemon = {**os.environ, "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [mounts.PROGRAM, "mount", "--foreground", "--store", self.store, "--config", config, self.point],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment_of_daemon)
        wait_until(lambda: mounts.is_mounted(self.point) or self.process.poll() is not None, what="the mount")

    def command(self, *argv):
        """Runs a command as root. The command may fail, but must exit in time."""
        command = subprocess.Popen([mounts.PROGRAM, *argv, "--mount", self.point], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        try:
            command.wait(LONGEST_COMMAND_S)
        except subprocess.TimeoutExpired:
            command.kill()  # it cannot exit before the daemon answers, so the test does not wait for it
            pytest.fail(f"seed {SEED}: root's `{' '.join(argv)}` takes longer than {LONGEST_COMMAND_S} s:\n"
                        f"{self.threads()}")

    def threads(self):
        """Returns what each thread of the daemon waits for in the kernel."""
        found = []
        for thread in sorted(threads(self.process.pid)):
            with contextlib.suppress(OSError):
                stack = [line.split()[-1].partition("+")[0] for line in (thread / "stack").read_text().splitlines()]
                found.append(f"{(thread / 'comm').read_text().strip()} ({state_of(thread)}): {' < '.join(stack[:5])}")
        return "\n".join(found)

    def serves(self):
        return self.process.poll() is None

    def events(self, name):
        """Returns how many events of this name the daemon has recorded."""
        records = (self.store / ".cacheshim/audit").glob("*.jsonl")
        return sum(file.read_text().count(f'"event":"{name}"') for file in records)

    def reports(self):
        """Returns the first report of a sanitizer, or "" if there is none."""
        text = self.log.read_text(errors="replace")
        found = [text.find(word) for word in REPORTS if word in text]
        return text[max(0, min(found) - 500):][:20_000] if found else ""

    def last_lines(self):
        return self.log.read_text(errors="replace")[-2000:]

    def end(self):
        """Unmounts; returns the exit status of the daemon."""
        wait_until(lambda: mounts.run(mounts.PROGRAM, "unmount", self.point).returncode == 0, END_S, "the unmount")
        return self.process.wait(END_S)

    def close(self):
        # Kill the daemon first, so that no process waits for its answer.
        self.process.kill()
        self.process.wait(END_S)
        if mounts.is_mounted(self.point):
            mounts.run("umount", "-l", self.point)


class Attackers:
    """The users' processes, each with its children in its own session."""

    def __init__(self, point, logs):
        self._running = {}  # process: its log
        for uid, names in USERS.items():
            for number in range(ATTACKERS_PER_USER):
                seed = SEED + len(self._running)
                log = logs / f"attacker-{uid}-{number}.log"
                with open(log, "wb") as output:
                    process = subprocess.Popen(
                        [ATTACKER, point, str(seed), str(SECONDS), *names], stdin=subprocess.DEVNULL, stdout=output,
                        stderr=output, env=environment(), user=uid, group=uid, extra_groups=[], umask=0o022,
                        start_new_session=True)
                self._running[process] = log

    def attack(self):
        return all(one.poll() is None for one in self._running)

    def failures(self):
        """Waits until all attackers have ended, or one has failed. Returns the output of those that have failed."""
        wait_until(lambda: self._failed() or all(one.poll() is not None for one in self._running), END_S,
                   "the end of the attackers")
        return "\n".join(f"{self._running[one].stem} ended with {one.returncode}: {self._running[one].read_text()}"
                         for one in self._failed())

    def _failed(self):
        return [one for one in self._running if one.poll() not in (None, 0)]

    def close(self):
        for one in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait(END_S)


def change_base(daemon, source):
    """Removes and adds files of the base, as another process on this machine could. The daemon may evict or replace
    them meanwhile."""
    shutil.rmtree(daemon.store / source.choice(["triton/KEY0", "triton/KEY2", "other/a"]), ignore_errors=True)
    with contextlib.suppress(OSError):
        fill(daemon.store)


def act_as_root(daemon, source):
    job = source.choice(["team", "one", "two", "three", "uid-20002", "uid-20004"])
    commands = [("status",), ("stats",), ("job", "list"), ("gc",), ("verify",), ("verify", "--repair"),
                ("job", "publish", job), ("explain", "triton/KEY1", "--job", job),
                *[("job", "discard", job), ("job", "end", job, "--success")] * 4]
    if source.random() < 0.2:
        change_base(daemon, source)
    else:
        daemon.command(*source.choice(commands))
    daemon.command("job", "start", "team", "--shared-uids")


@pytest.mark.long
@pytest.mark.timeout_s(SECONDS + 600)
def test_random_system_calls_of_four_users_do_no_harm(scratch):
    """No call hangs, the daemon survives without a report of its sanitizers, and ends normally."""
    print(f"FUZZ_SEED={SEED} FUZZ_SECONDS={SECONDS}")
    (scratch / "store").mkdir()
    fill(scratch / "store")
    source = random.Random(SEED)
    with contextlib.closing(Daemon(scratch)) as daemon:
        daemon.command("job", "start", "team", "--shared-uids")
        with contextlib.closing(Attackers(daemon.point, scratch)) as attackers:
            while attackers.attack() and daemon.serves():
                act_as_root(daemon, source)
                time.sleep(source.random() / 5)
            assert daemon.serves(), (f"seed {SEED}: the daemon has ended with {daemon.process.returncode}: "
                                     f"{daemon.reports() or daemon.last_lines()}")
            assert not (text := attackers.failures()), f"seed {SEED}: {text}\nThe daemon's threads:\n{daemon.threads()}"
            counters = json.loads(mounts.run(mounts.PROGRAM, "stats", "--json", "--mount", daemon.point).stdout)
            print({name: count for name, count in counters.items() if count})
        assert daemon.events("publish") > 0 and daemon.events("evict") > 0, "the attackers reach the base"
        assert daemon.end() == 0, f"seed {SEED}: {daemon.reports()}"
        assert not daemon.reports(), f"seed {SEED}: {daemon.reports()}"
