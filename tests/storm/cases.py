# SPDX-License-Identifier: Apache-2.0
"""The parts of scenarios: lists of jobs, checks of the base, verdicts."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cachemount import CacheMount, CommandFailed
from jobs import FIRST_UID, Box, Command, Job, Storm
from lab import Lab

TEMPORARY_NAME = re.compile(r"(^|\.)tmp\.pid_")
ENTRY_SUFFIXES = ("source", "ttir", "ttgir", "llir", "ptx", "cubin", "json")


@dataclass
class Verdict:
    """The result of a scenario. The scenario has passed if `complaints` is empty."""

    name: str
    complaints: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    skipped: str = ""  # why the scenario was skipped; empty if it ran

    def expect(self, condition: bool, complaint: str) -> None:
        if not condition:
            self.complaints.append(complaint)


Scenario = Callable[[Lab, Verdict], None]


def judge(lab: Lab, name: str, scenario: Scenario) -> Verdict:
    """Runs a scenario; an exception counts as a complaint."""
    verdict = Verdict(name)
    lab.progress.say(name)
    start = time.monotonic()
    try:
        scenario(lab, verdict)
    except (CommandFailed, OSError) as error:
        verdict.complaints.append(f"{type(error).__name__}: {error}")
    except Exception as error:
        verdict.complaints.append(f"the scenario itself broke: {type(error).__name__}: {error}")
    left = end_leftovers()
    verdict.expect(not left, f"jobs' processes were left: {left[:5]}")
    verdict.seconds = time.monotonic() - start
    return verdict


def end_leftovers() -> list[str]:
    """Kills the processes that still run as a job's user, so that they cannot disturb the next scenario; returns their
    pids and names."""
    left = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if entry.stat().st_uid < FIRST_UID or " Z " in (entry / "stat").read_text():
                continue
            left.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
            os.kill(int(entry.name), signal.SIGKILL)
    return left


class PtxasLog:
    """A log in which ptxas-wrapper records each run of ptxas and its result's digest."""

    def __init__(self, lab: Lab) -> None:
        lab._made += 1
        self.path = lab.exchange / f"ptxas-{lab._made}"
        self.path.touch()
        self.path.chmod(0o666)
        self._ptxas = lab.ptxas
        self._wrapper = lab.stage / "ptxas-wrapper"

    def environment(self) -> dict[str, str]:
        return {
            "TRITON_PTXAS_BLACKWELL_PATH": str(self._wrapper),
            "STORM_PTXAS": str(self._ptxas),
            "STORM_PTXAS_LOG": str(self.path),
        }

    def digests(self) -> list[str]:
        return self.path.read_text().splitlines()

    def compiled_once(self) -> str:
        """Returns how many of the compiled kernels were compiled only once, for example "23 of 24"."""
        runs = Counter(self.digests())
        return f"{sum(1 for count in runs.values() if count == 1)} of {len(runs)}"


def without_library(job: str, family: str) -> dict[str, str]:
    """Returns the variables of a job without the library: the job's name, and a TRITON_CACHE_DIR in the cache family
    `family`."""
    return {"CACHESHIM_JOB": job, "TRITON_CACHE_DIR": f"/ci-cache/{family}"}


def preload(lab: Lab, job: str) -> dict[str, str]:
    """Returns the variables that a job script sets for cacheshim."""
    return {"LD_PRELOAD": str(lab.library), "CACHESHIM_JOB": job}


def triton_jobs(
    lab: Lab,
    prefix: str,
    count: int,
    log: PtxasLog,
    *,
    kernels: int,
    cache: str | None = None,
    box: Box = Box.PIDS,
    arguments: tuple[str, ...] = ("--launcher",),
    unshimmed: str | None = None,
) -> list[Job]:
    """Creates jobs of `count` users, all of which compile the same kernels. If `cache` is given, the jobs use that
    directory. Otherwise they use cacheshim: with the library or, if `unshimmed` names a cache family, without the
    library in that family."""
    jobs = []
    for index in range(count):
        name = f"{prefix}-{index}"
        environment = {"TRITON_CACHE_DIR": cache} if cache else preload(lab, name)
        if unshimmed:
            environment = without_library(name, unshimmed)
        command: Command = [
            lab.python,
            lab.stage / "worker.py",
            "--kernels",
            str(kernels),
            *arguments,
        ]
        jobs.append(
            Job(name, FIRST_UID + index, command, {**environment, **log.environment()}, box)
        )
    return jobs


def key_of(kernel_hash: str) -> str:
    """Returns the directory name that Triton derives from a hash."""
    return base64.b32encode(bytes.fromhex(kernel_hash)).decode().rstrip("=")


def expect_clean(verdict: Verdict, storm: Storm, what: str) -> None:
    for line in storm.complaints():
        verdict.complaints.append(f"{what}: {line}")


def expect_no_rejection(verdict: Verdict, mount: CacheMount) -> None:
    """Verifies that no job has opened an entry of the base and then built it again."""
    stats = mount.stats()
    found = {name: stats[name] for name in ("entries_rejected", "rebuilds_equal", "entries_replaced")}
    verdict.expect(not any(found.values()), f"jobs have rejected entries of the base: {found}")


def expect_single_flight(verdict: Verdict, log: PtxasLog, kernels: int, what: str) -> None:
    """Verifies that the number of ptxas runs is at least `kernels`, and at most 5 % more."""
    runs = len(log.digests())
    verdict.expect(
        kernels <= runs <= kernels * 1.05, f"{what}: {runs} ptxas runs for {kernels} kernels"
    )


def expect_warm(verdict: Verdict, storm: Storm, log: PtxasLog, what: str) -> None:
    """Verifies that no kernel was compiled: ptxas never ran, and Triton counted a hit for every call."""
    runs = len(log.digests())
    verdict.expect(runs == 0, f"{what}: {runs} ptxas runs where none was needed")
    verdict.expect(storm.hits == storm.calls, f"{what}: {storm.hits} hits in {storm.calls} calls")


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def temporary_names(base: Path) -> list[str]:
    return [
        str(path.relative_to(base)) for path in base.rglob("*") if TEMPORARY_NAME.search(path.name)
    ]


def is_launcher(files: set[str]) -> bool:
    return len(files) == 1 and next(iter(files)).endswith(".so")


def expect_whole_entries(verdict: Verdict, base: Path, what: str, name: str = "axpy") -> None:
    """Verifies that the base contains no temporary names, and that no entry lacks a file or has an empty one."""
    left = temporary_names(base)
    verdict.expect(not left, f"{what}: temporary names in the base: {left[:3]}")
    expected = {f"{name}.{suffix}" for suffix in ENTRY_SUFFIXES} | {f"__grp__{name}.json"}
    for entry in base.iterdir() if base.is_dir() else ():
        files = {path.name for path in entry.iterdir()} if entry.is_dir() else set()
        if is_launcher(files):
            continue
        missing = expected - files
        verdict.expect(not missing, f"{what}: entry {entry.name} lacks {sorted(missing)}")
        empty = [file for file in files & expected if not (entry / file).stat().st_size]
        verdict.expect(not empty, f"{what}: entry {entry.name} has empty files {empty}")


def expect_cubins(
    verdict: Verdict, base: Path, storms: list[Storm], compiled: set[str], kernels: int, what: str
) -> None:
    """Verifies that the base has one complete entry per kernel, that ptxas has compiled each entry's cubin (the cubin's
    digest is in `compiled`), and that each job has loaded that cubin."""
    expect_whole_entries(verdict, base, what)
    every = list(base.iterdir()) if base.is_dir() else []
    entries = [entry for entry in every if not is_launcher({file.name for file in entry.iterdir()})]
    launchers = len(every) - len(entries)
    verdict.expect(launchers <= 1, f"{what}: {launchers} entries for one launcher")
    verdict.expect(len(entries) == kernels, f"{what}: {len(entries)} entries for {kernels} kernels")
    for entry in entries:
        cubin = entry / "axpy.cubin"
        if cubin.exists():
            known = digest_of(cubin) in compiled
            verdict.expect(known, f"{what}: {entry.name}/axpy.cubin is none that ptxas made")
    loaded = {
        (kernel["hash"], kernel["cubin"])
        for storm in storms
        for result in storm.results
        if result.report
        for kernel in result.report["kernels"].values()
    }
    for kernel_hash, digest in loaded:
        cubin = base / key_of(kernel_hash) / "axpy.cubin"
        same = cubin.exists() and digest_of(cubin) == digest
        verdict.expect(
            same, f"{what}: a job loaded another cubin than the base has: {cubin.parent.name}"
        )


def end_jobs(mount: CacheMount, jobs: list[Job]) -> None:
    for job in jobs:
        mount.end_job(job.name)
