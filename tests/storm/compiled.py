# SPDX-License-Identifier: Apache-2.0
"""Runs torch.compile() as several users on one cache: C++ for the CPU, built by g++."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

from cachemount import CacheMount
from cases import Verdict, digest_of, end_jobs, expect_clean, expect_no_rejection, preload
from jobs import FIRST_UID, Job, Storm, storm
from lab import Lab
from passes import error_kinds, shared_directory

TIMEOUT_S = 420.0
TEMPORARY = re.compile(r"\.tmp$|^tmp\.|tmp\.pid_|_CxxBuild$")
# Directories of the inductor cache whose entries are named by their contents: GRAPHS/…/KEY/NAME.
GRAPHS = ("fxgraph", "aotautograd")


class GxxLog:
    """A log in which g++-wrapper records each run of g++: the result's name and digest."""

    def __init__(self, lab: Lab) -> None:
        self.path = lab.fresh("gxx") / "log"
        self.path.parent.chmod(0o755)
        self.path.touch()
        self.path.chmod(0o666)
        self._wrapper = lab.stage / "g++-wrapper"

    def environment(self) -> dict[str, str]:
        return {
            "CXX": str(self._wrapper),
            "STORM_GXX_LOG": str(self.path),
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            # Inductor keeps precompiled headers below TMPDIR, not in its cache directory.
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
        }

    def builds(self) -> list[tuple[str, str]]:
        return [(line.split()[0], line.split()[1]) for line in self.path.read_text().splitlines()]


def compile_jobs(lab: Lab, prefix: str, count: int, log: GxxLog, cache: str | None) -> list[Job]:
    """Creates jobs that use cacheshim with the library. If `cache` names a plain directory, the jobs use that directory
    instead, all as one user, because users cannot enter the directories that another user creates in it."""
    jobs = []
    for index in range(count):
        name = f"{prefix}-{index}"
        environment = {**({} if cache else preload(lab, name)), **log.environment()}
        environment["TORCHINDUCTOR_CACHE_DIR"] = cache or "/ci-cache/inductor"
        command: list[str | Path] = [lab.python_of("torch"), lab.stage / "inductor_worker.py"]
        jobs.append(Job(name, FIRST_UID + (0 if cache else index), command, environment))
    return jobs


def counted(done: Storm, group: str, name: str) -> int:
    reports = [one.report for one in done.results if one.report]
    return sum(report["counters"].get(group, {}).get(name, 0) for report in reports)


def figures_of(done: Storm, log: GxxLog, daemon_cpu: float = 0.0) -> dict[str, Any]:
    builds = log.builds()
    return {
        "jobs": len(done.results),
        "calls": done.calls,
        "errors": len(done.errors) + sum(1 for one in done.results if one.trouble),
        "kinds": error_kinds(done),
        "gxx_runs": len(builds),
        "libraries": len({name for name, _ in builds}),
        "graph_hits": counted(done, "inductor", "fxgraph_cache_hit"),
        "graph_misses": counted(done, "inductor", "fxgraph_cache_miss"),
        "cpu_s": round(done.cpu + daemon_cpu, 2),
        "daemon_cpu_s": round(daemon_cpu, 2),
        "wall_s": round(done.wall, 2),
    }


def content_name(path: Path) -> str:
    """Returns the name that Inductor gives to this content (torch/_inductor/cache_key.py)."""
    digest = hashlib.sha256(path.read_bytes()).digest()
    return base64.b32encode(digest).decode()[:51].lower()


def expect_sound_base(
    verdict: Verdict, base: Path, builds: list[tuple[str, str]], jobs: int
) -> dict[str, int]:
    """Verifies that every entry exists and is complete, that there are no temporary files, and that lock files are
    empty and in `locks`. Returns the number of files of each kind."""
    files = [path for path in base.rglob("*") if not path.is_dir()]
    names = [path.name for path in base.rglob("*")]
    left = [name for name in names if TEMPORARY.search(name)]
    verdict.expect(not left, f"temporary names in the base: {left[:3]}")
    locks = [path for path in files if path.suffix == ".lock"]
    astray = [str(path) for path in locks if path.parent != base / "locks" or path.stat().st_size]
    verdict.expect(not astray, f"locks that were published: {astray[:3]}")
    libraries = [path for path in files if path.suffix == ".so"]
    built = set(builds)
    torn = [path.name for path in libraries if (path.name, digest_of(path)) not in built]
    verdict.expect(not torn, f"libraries that g++ has not made so: {torn[:3]}")
    missing = {name for name, _ in built} - {path.name for path in libraries}
    verdict.expect(not missing, f"libraries that are not in the base: {sorted(missing)[:3]}")
    for path in files:
        if path.suffix == ".py":
            compile(path.read_text(), path.name, "exec")  # a truncated file does not compile
    graphs = [path for path in files if path.relative_to(base).parts[0] in GRAPHS]
    torn = [path.name for path in graphs if path.name != content_name(path)]
    verdict.expect(not torn, f"graphs in pieces: {torn[:3]}")
    keys = Counter(path.parent for path in graphs)
    crowded = [str(key) for key, count in keys.items() if count > jobs]
    verdict.expect(not crowded, f"more versions of a graph than builders: {crowded[:3]}")
    return {
        "libraries": len(libraries),
        "sources": sum(1 for path in files if path.suffix in (".py", ".cpp")),
        "graph_keys": len(keys),
        "graph_files": len(graphs),
    }


def expect_nothing_compiled(verdict: Verdict, warm: Storm, log: GxxLog) -> None:
    runs = len(log.builds())
    verdict.expect(runs == 0, f"warm: {runs} g++ runs where none was needed")
    for group, name in (("inductor", "fxgraph_cache_miss"), ("aot_autograd", "autograd_cache_miss")):
        misses = counted(warm, group, name)
        verdict.expect(misses == 0, f"warm: {misses} {name}")
    verdict.expect(warm.hits >= warm.calls, f"warm: {warm.hits} hits in {warm.calls} calls")


def cold_then_warm(lab: Lab, verdict: Verdict, *, jobs: int) -> None:
    """Runs a pass in a plain directory for comparison, then a cold one and a warm one through cacheshim."""
    plain_log, cold_log, warm_log = (GxxLog(lab) for _ in range(3))
    directory = str(shared_directory(lab, "plain"))
    plain = storm(
        lab, compile_jobs(lab, "plain", jobs, plain_log, directory), "plain directory", TIMEOUT_S
    )
    verdict.figures["plain directory, one user"] = figures_of(plain, plain_log)
    with CacheMount(lab, lab.fresh("store")) as mount:
        passes = {}
        for name, log in (("cold", cold_log), ("warm", warm_log)):
            before = mount.daemon_cpu()
            everyone = compile_jobs(lab, name, jobs, log, None)
            passes[name] = storm(lab, everyone, name, TIMEOUT_S)
            verdict.figures[name] = figures_of(
                passes[name], log, mount.daemon_cpu() - before
            )
            end_jobs(mount, everyone)
            expect_clean(verdict, passes[name], name)
        verdict.figures["stats"] = mount.stats()
        expect_no_rejection(verdict, mount)
        expect_nothing_compiled(verdict, passes["warm"], warm_log)
        builds = cold_log.builds()
        again = [name for name, count in Counter(name for name, _ in builds).items() if count > 1]
        verdict.expect(bool(builds), "cold: g++ has built nothing")
        verdict.expect(not again, f"cold: built more than once: {again}")
        base = mount.store / "inductor"
        verdict.figures["base"] = expect_sound_base(verdict, base, builds, jobs)
