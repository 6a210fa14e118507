# SPDX-License-Identifier: Apache-2.0
"""Runs one pass of jobs and measures it; turns the results of a pass into figures and error texts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from cachemount import CacheMount
from cases import PtxasLog, end_jobs
from jobs import Job, Storm, storm
from lab import Lab


def error_kinds(storm_done: Storm) -> str:
    kinds = Counter(error["type"] for error in storm_done.errors)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"


def error_lines(done: Storm) -> list[str]:
    return [f"{e['type']} errno {e['errno']} {e['path'] or e['message']}" for e in done.errors[:5]]


def shared_directory(lab: Lab, name: str) -> Path:
    """Creates a directory to which every user may write. Without cacheshim, clusters share caches in this way."""
    directory = lab.fresh(name)
    directory.chmod(0o1777)
    return directory


def figures_of(done: Storm, log: PtxasLog, daemon_cpu: float = 0.0) -> dict[str, Any]:
    return {
        "jobs": len(done.results),
        "calls": done.calls,
        "errors": len(done.errors) + sum(1 for one in done.results if one.trouble),
        "kinds": error_kinds(done),
        "ptxas_runs": len(log.digests()),
        "compiled_once": log.compiled_once(),
        "cpu_s": round(done.cpu + daemon_cpu, 2),
        "daemon_cpu_s": round(daemon_cpu, 2),
        "wall_s": round(done.wall, 2),
    }


def measured_pass(
    lab: Lab, mount: CacheMount, jobs: list[Job], log: PtxasLog, what: str
) -> tuple[Storm, dict[str, Any]]:
    """Runs one pass through cacheshim, and then ends its jobs; the figures include the daemon's CPU time."""
    before = mount.daemon_cpu()
    done = storm(lab, jobs, what)
    figures = figures_of(done, log, mount.daemon_cpu() - before)
    end_jobs(mount, jobs)
    return done, figures
