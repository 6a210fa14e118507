# SPDX-License-Identifier: Apache-2.0
"""The storms without faults: real jobs of several users share one cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cachemount import CacheMount
from cases import (
    PtxasLog,
    Verdict,
    expect_clean,
    expect_cubins,
    expect_no_rejection,
    expect_single_flight,
    expect_warm,
    triton_jobs,
)
from jobs import FIRST_UID, Box, Command, Job, storm
from lab import Lab, run
from passes import figures_of, measured_pass, shared_directory


def plain_directory(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """Verifies that the storm fails in a plain shared directory; otherwise the other scenarios would prove nothing."""
    log = PtxasLog(lab)
    cache = shared_directory(lab, "plain")
    done = storm(
        lab,
        triton_jobs(lab, "plain", jobs, log, kernels=kernels, cache=str(cache), arguments=()),
        "plain directory",
    )
    verdict.figures = figures_of(done, log)
    verdict.expect(
        bool(done.errors), "no error on a plain directory: this storm is too weak to show any"
    )


def cold_then_warm(
    lab: Lab,
    verdict: Verdict,
    *,
    jobs: int,
    kernels: int,
    box: Box = Box.PIDS,
    warm_jobs: int | None = None,
    unshimmed: str | None = None,
) -> None:
    """Runs a cold pass, then a warm pass of other jobs. Verifies that no job has errors, that the warm pass compiles
    nothing, and that the base is correct.

    If `unshimmed` is given, the jobs run without the library, in that cache family.
    """
    with CacheMount(lab, lab.fresh("store")) as mount:
        cold_log, warm_log = PtxasLog(lab), PtxasLog(lab)
        make = partial(triton_jobs, lab, kernels=kernels, box=box, unshimmed=unshimmed)
        cold, cold_figures = measured_pass(
            lab, mount, make("cold", jobs, cold_log), cold_log, "cold"
        )
        warm, warm_figures = measured_pass(
            lab, mount, make("warm", warm_jobs or jobs, warm_log), warm_log, "warm"
        )
        verdict.figures = {"cold": cold_figures, "warm": warm_figures, "stats": mount.stats()}
        expect_clean(verdict, cold, "cold")
        expect_clean(verdict, warm, "warm")
        expect_warm(verdict, warm, warm_log, "warm")
        expect_single_flight(verdict, cold_log, kernels, "cold")
        compiled = set(cold_log.digests())
        base = mount.store / (unshimmed or "triton")
        expect_cubins(verdict, base, [cold, warm], compiled, kernels, "base")
        verdict.expect(
            mount.stats()["flight_timeouts"] == 0, "somebody has waited for nothing until the timeout"
        )
        expect_no_rejection(verdict, mount)


def spellings(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """Verifies that jobs share the cache if their TRITON_CACHE_DIR names it by different paths, such as a relative one.

    Triton writes the path of TRITON_CACHE_DIR into its entries, and cacheshim publishes an entry only if that path is
    the mount's own. So the library must replace the other paths.
    """
    links = lab.fresh("links")
    (links / "cache").symlink_to("/ci-cache/triton")
    (links / "mount").symlink_to("/ci-cache")
    spelled = {
        "relative": "ci-cache/triton",  # jobs start in /
        "relative with dots": "./usr/../ci-cache//triton",
        "doubled slashes": "//ci-cache//triton/",
        "absolute with dots": "/usr/../ci-cache/triton",
        "symlink": str(links / "cache"),
        "below a symlink": str(links / "mount" / "triton"),
    }
    for what, path in spelled.items():
        with CacheMount(lab, lab.fresh("store")) as mount:
            make = partial(triton_jobs, lab, kernels=kernels)
            logs = {"cold": PtxasLog(lab), "later": PtxasLog(lab)}
            for name, log in logs.items():
                everyone = make(name, jobs if name == "cold" else 1, log)
                for job in everyone:
                    job.environment["TRITON_CACHE_DIR"] = path
                done, figures = measured_pass(lab, mount, everyone, log, f"{what}, {name}")
                verdict.figures[f"{what}, {name}"] = figures["ptxas_runs"]
                expect_clean(verdict, done, f"{what}, {name}")
            expect_single_flight(verdict, logs["cold"], kernels, what)
            expect_warm(verdict, done, logs["later"], what)


# The profile of a family that the program does not know: Triton's name rules under another name.
OWN_FAMILY = """
name = "storm-cache"
evidence = "run"
[[entry]]
path = "*"
complete = ["__grp__*.json"]
complete_single = ["*.so", "*.json"]
paths_in = ["__grp__*.json"]
[class]
scratch = ["tmp.pid_*", "*.tmp.pid_*"]
flight = ["__grp__*.json", "*.so"]
"""


@contextmanager
def own_profile(lab: Lab) -> Iterator[str]:
    """Installs OWN_FAMILY in a new profiles.d, the only content of /etc/cacheshim during the block. Yields the family's
    name."""
    directory = lab.fresh("etc")
    (directory / "profiles.d").mkdir()
    (directory / "profiles.d/storm-cache.toml").write_text(OWN_FAMILY)
    etc = Path("/etc/cacheshim")
    etc.mkdir(exist_ok=True)
    run("mount", "--bind", directory, etc)
    try:
        yield "storm-cache"
    finally:
        run("umount", etc)


def own_family(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """Runs a cold and a warm pass in a user-defined family, by jobs without the library."""
    with own_profile(lab) as family:
        cold_then_warm(lab, verdict, jobs=jobs, kernels=kernels, unshimmed=family)


def container_jobs(
    lab: Lab, mount: CacheMount, prefix: str, count: int, log: PtxasLog, kernels: int, box: Box
) -> list[Job]:
    """Creates jobs as SLURM with enroot does: the mount is bound into the container, and the job script sets LD_PRELOAD
    and CACHESHIM_JOB."""
    jobs = triton_jobs(lab, prefix, count, log, kernels=kernels, box=box)
    for job in jobs:
        job.cache = mount.mount_point
    return jobs


def containers(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int, box: Box) -> None:
    """Verifies that jobs in containers use the shared cache instead of ~/.triton/cache in their own /root."""
    with CacheMount(lab, lab.fresh("store")) as mount:
        cold_log, warm_log = PtxasLog(lab), PtxasLog(lab)
        make = partial(container_jobs, lab, mount, kernels=kernels, box=box)
        cold, cold_figures = measured_pass(
            lab, mount, make("cold", jobs, cold_log), cold_log, "cold, in containers"
        )
        warm, warm_figures = measured_pass(
            lab, mount, make("warm", jobs, warm_log), warm_log, "warm, in containers"
        )
        verdict.figures = {"cold": cold_figures, "warm": warm_figures}
        expect_clean(verdict, cold, "cold")
        expect_clean(verdict, warm, "warm")
        expect_warm(verdict, warm, warm_log, "warm")
        compiled = set(cold_log.digests())
        expect_cubins(verdict, mount.base, [cold, warm], compiled, kernels, "base")


def bound_view_jobs(
    lab: Lab, mount: CacheMount, prefix: str, count: int, log: PtxasLog, kernels: int
) -> list[Job]:
    """Creates jobs as `docker run -v /ci-cache/.jobs/ID:/ci-cache -e TRITON_CACHE_DIR=/ci-cache/triton` does."""
    jobs = []
    for index in range(count):
        name = f"{prefix}-{index}"
        mount.command("job", "start", name, "--mount", mount.mount_point)
        command: Command = [
            lab.python,
            lab.stage / "worker.py",
            "--kernels",
            str(kernels),
            "--launcher",
        ]
        environment = {"TRITON_CACHE_DIR": "/ci-cache/triton", **log.environment()}
        view = mount.mount_point / ".jobs" / name
        jobs.append(Job(name, FIRST_UID + index, command, environment, Box.CONTAINER, view))
    return jobs


def bound_views(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """Runs jobs in containers that have one job's view at /ci-cache, and neither the library nor the rest of the
    mount."""
    with CacheMount(lab, lab.fresh("store")) as mount:
        cold_log, warm_log = PtxasLog(lab), PtxasLog(lab)
        make = partial(bound_view_jobs, lab, mount, kernels=kernels)
        cold, cold_figures = measured_pass(
            lab, mount, make("cold", jobs, cold_log), cold_log, "cold, bound views"
        )
        warm, warm_figures = measured_pass(
            lab, mount, make("warm", jobs, warm_log), warm_log, "warm, bound views"
        )
        verdict.figures = {"cold": cold_figures, "warm": warm_figures}
        expect_clean(verdict, cold, "cold")
        expect_clean(verdict, warm, "warm")
        expect_warm(verdict, warm, warm_log, "warm")
        compiled = set(cold_log.digests())
        expect_cubins(verdict, mount.base, [cold, warm], compiled, kernels, "base")
