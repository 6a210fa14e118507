# SPDX-License-Identifier: Apache-2.0
"""Storms on several machines that have their own stores and share a remote tier."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from cachemount import CacheMount, Machine
from cases import PtxasLog, Verdict, end_jobs, expect_clean, expect_cubins, expect_warm, triton_jobs
from jobs import Job, storm
from lab import Lab
from passes import figures_of

SLOW_MS = 5000  # the wait_ms if the engine must answer in time although the jobs keep the machine busy


class Redis:
    """A Redis server on a machine that only `connect`ed machines reach, over TCP."""

    ADDRESS = "10.99.0.1"

    def __init__(self, lab: Lab) -> None:
        directory = lab.fresh("redis")
        self._socket = directory / "socket"  # for this class
        program = shutil.which("redis-server", path="/usr/bin:/usr/sbin")
        if program is None:
            raise OSError("needs redis-server (Debian package redis-server)")
        self.machine = Machine("redis", has_network=True)
        self._connected: list[str] = []
        self._ip("link", "add", "bridge", "type", "bridge")
        self._ip("address", "add", f"{self.ADDRESS}/24", "dev", "bridge")
        self._ip("link", "set", "bridge", "up")
        self._process = subprocess.Popen(
            [*self.machine.enter(), program, "--bind", self.ADDRESS, "--protected-mode", "no", "--unixsocket", self._socket]
            + ["--save", "", "--dir", directory],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while not self._socket.exists():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise OSError("redis-server does not start")
            time.sleep(0.01)

    @property
    def url(self) -> str:
        return f"redis://{self.ADDRESS}:6379"

    def connect(self, machine: Machine) -> None:
        """Connects the machine, which must have its own network namespace, with this one."""
        port = f"port{len(self._connected)}"
        self._connected.append(port)
        self._ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", machine.proc.name)
        self._ip("link", "set", port, "master", "bridge", "up")
        address = f"10.99.0.{1 + len(self._connected)}/24"
        _ip(machine, "address", "add", address, "dev", "eth0")
        _ip(machine, "link", "set", "eth0", "up")

    def disconnect(self) -> None:
        """Makes the network drop all packets without a reply. The machines' own links stay up."""
        for port in self._connected:
            self._ip("link", "set", port, "nomaster")

    def stop(self) -> None:
        """Stops the server. The kernel of its machine still accepts data for it."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self.kill()
        self.machine.end()

    def fill(self) -> None:
        self._command("CONFIG", "SET", "maxmemory", "1")

    def _command(self, *words: str) -> None:
        subprocess.run(["redis-cli", "-s", self._socket, *words], check=True, stdout=subprocess.DEVNULL)

    def _ip(self, *words: str) -> None:
        _ip(self.machine, *words)


def _ip(machine: Machine, *words: str) -> None:
    subprocess.run([*machine.enter(), "ip", *words], check=True)


class Site:
    """Machines with a common Redis server and key."""

    def __init__(self, lab: Lab, stack: contextlib.ExitStack, wait_ms: int) -> None:
        self.lab, self._stack = lab, stack
        self.redis = Redis(lab)
        stack.callback(self.redis.end)
        directory = lab.fresh("site")
        key, self._config = directory / "key", directory / "cacheshim.toml"
        subprocess.run([lab.cacheshim, "remote", "keygen", key], check=True, stdout=subprocess.DEVNULL)
        values = {"url": self.redis.url, "sign_with": str(key), "wait_ms": wait_ms}
        self._config.write_text("[remote]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))

    def mount(self, name: str, with_tier: bool = True) -> CacheMount:
        """Mounts a new store on a new machine."""
        machine = Machine(name, has_network=True)
        self._stack.callback(machine.end)
        self.redis.connect(machine)
        options = ("--config", self._config) if with_tier else ()
        return self._stack.enter_context(
            CacheMount(self.lab, self.lab.fresh(f"store-{name}"), machine=machine, options=options)
        )


@contextlib.contextmanager
def site(lab: Lab, wait_ms: int = SLOW_MS) -> Iterator[Site]:
    with contextlib.ExitStack() as stack:
        yield Site(lab, stack, wait_ms)


def jobs_on(mount: CacheMount, count: int, log: PtxasLog, kernels: int) -> list[Job]:
    assert mount.machine
    jobs = triton_jobs(mount.lab, mount.machine.name, count, log, kernels=kernels)
    for job in jobs:
        job.enter = mount.machine.enter()
    return jobs


def each_compiles_once(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """Runs a storm on two machines at once, and then one on a third machine. Verifies that the two machines together
    compile each kernel once, and that the third compiles none."""
    with site(lab) as one_site:
        mounts = [one_site.mount(name) for name in ("one", "two")]
        log, later = PtxasLog(lab), PtxasLog(lab)
        everyone = [job for mount in mounts for job in jobs_on(mount, jobs, log, kernels)]
        both = storm(lab, everyone, "two machines")
        third = one_site.mount("three")
        last = storm(lab, jobs_on(third, jobs, later, kernels), "a third machine")
        mounts.append(third)
        verdict.figures = {
            "two": figures_of(both, log),
            "third": figures_of(last, later),
            "stats": [_remote_stats(mount) for mount in mounts],
        }
        expect_clean(verdict, both, "two machines")
        expect_clean(verdict, last, "the third machine")
        runs = len(log.digests())
        verdict.expect(runs == kernels, f"{runs} ptxas runs for {kernels} kernels on two machines")
        expect_warm(verdict, last, later, "the third machine")
        for mount in mounts:
            expect_cubins(verdict, mount.base, [both, last], set(log.digests()), kernels, mount.store.name)
            verdict.expect(mount.stats()["remote_untrusted"] == 0, "an entry was not trusted")


def _remote_stats(mount: CacheMount) -> dict[str, int]:
    return {name: value for name, value in mount.stats().items() if name.startswith("remote_") and value}


def _break_after(redis: Redis, trouble: str, logs: list[PtxasLog], kernels: int) -> None:
    """Makes the engine fail once this number of kernels is compiled."""
    deadline = time.monotonic() + 60
    while sum(len(log.digests()) for log in logs) < kernels and time.monotonic() < deadline:
        time.sleep(0.01)
    TROUBLES[trouble](redis)


TROUBLES = {"killed": Redis.kill, "stopped": Redis.stop, "full": Redis.fill, "blackholed": Redis.disconnect}


def engine_fails(lab: Lab, verdict: Verdict, *, trouble: str, jobs: int, kernels: int) -> None:
    """Makes the engine fail during a storm on two machines. Verifies that no job has an error, and that each machine
    compiles a kernel at most once. The figures show how long the storm takes, with the tier and without."""
    with site(lab, wait_ms=250) as one_site:
        walls = {}
        for with_tier in (False, True):
            names = [f"{name}-{'tier' if with_tier else 'alone'}" for name in ("one", "two")]
            mounts = [one_site.mount(name, with_tier) for name in names]
            logs = [PtxasLog(lab) for _ in mounts]
            everyone = [
                job for mount, log in zip(mounts, logs, strict=True) for job in jobs_on(mount, jobs, log, kernels)
            ]
            if with_tier:
                breaker = threading.Thread(target=_break_after, args=(one_site.redis, trouble, logs, kernels // 4))
                breaker.start()
            done = storm(lab, everyone, "with the tier" if with_tier else "without")
            if with_tier:
                breaker.join()
            walls[with_tier] = done.wall
            runs = [len(log.digests()) for log in logs]
            verdict.figures[f"ptxas runs, {'with' if with_tier else 'without'} the tier"] = runs
            expect_clean(verdict, done, trouble)
            verdict.expect(max(runs) <= kernels, f"{runs} ptxas runs for {kernels} kernels")
            if with_tier:  # otherwise the engine's failure has come too late to test anything
                failures = [mount.stats()["remote_errors"] for mount in mounts]
                verdict.expect(any(failures), "no machine has noticed that the engine failed")
            for mount in mounts:
                end_jobs(mount, [job for job in everyone if job.name.startswith(mount.machine.name)])
        verdict.figures["wall"] = {"without": round(walls[False], 2), "with": round(walls[True], 2)}
