# SPDX-License-Identifier: Apache-2.0
"""The storms: real jobs of several users on one cache."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path

from cachemount import CacheMount, CommandFailed, processes
from cases import (
    PtxasLog,
    Scenario,
    Verdict,
    end_jobs,
    expect_clean,
    expect_cubins,
    expect_warm,
    expect_whole_entries,
    preload,
    temporary_names,
    triton_jobs,
)
from jobs import FIRST_UID, Box, Job, Running, Storm, go_all, start_all, storm, watch
from lab import Lab, run

CLEANER_UID = FIRST_UID + 90
READER_UID = FIRST_UID + 91


def error_kinds(storm_done: Storm) -> str:
    kinds = Counter(error["type"] for error in storm_done.errors)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"


def shared_folder(lab: Lab, name: str) -> Path:
    """What people do today: one folder that everybody may write to."""
    folder = lab.fresh(name)
    folder.chmod(0o1777)
    return folder


def plain_folder(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """The storm on a plain shared folder must fail, or the other scenarios prove nothing."""
    log = PtxasLog(lab)
    cache = shared_folder(lab, "plain")
    done = storm(
        lab, triton_jobs(lab, "plain", jobs, log, kernels=kernels, cache=str(cache)), "plain folder"
    )
    verdict.figures = figures_of(done, log)
    verdict.expect(bool(done.errors), "no error on a plain folder: this storm is too weak to show any")


def figures_of(done: Storm, log: PtxasLog, daemon_cpu: float = 0.0) -> dict[str, object]:
    return {
        "jobs": len(done.results),
        "calls": done.calls,
        "errors": len(done.errors) + sum(1 for one in done.results if one.trouble),
        "kinds": error_kinds(done),
        "ptxas_runs": len(log.digests()),
        "cpu_s": round(done.cpu + daemon_cpu, 2),
        "daemon_cpu_s": round(daemon_cpu, 2),
        "wall_s": round(done.wall, 2),
    }


def measured_pass(
    lab: Lab, mount: CacheMount, jobs: list[Job], log: PtxasLog, what: str
) -> tuple[Storm, dict[str, object]]:
    """One pass through cacheshim, the daemon's CPU time counted in; then all its jobs end."""
    before = mount.daemon_cpu()
    done = storm(lab, jobs, what)
    figures = figures_of(done, log, mount.daemon_cpu() - before)
    end_jobs(mount, jobs)
    return done, figures


def cold_then_warm(
    lab: Lab,
    verdict: Verdict,
    *,
    jobs: int,
    kernels: int,
    box: Box = Box.PIDS,
    warm_jobs: int | None = None,
) -> None:
    """A cold pass, then a warm one by other jobs: no error, no compile in the second, a sound base."""
    with CacheMount(lab, lab.fresh("store")) as mount:
        cold_log, warm_log = PtxasLog(lab), PtxasLog(lab)
        make = partial(triton_jobs, lab, kernels=kernels, box=box)
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
        compiled = set(cold_log.digests())
        expect_cubins(verdict, mount.base, [cold, warm], compiled, kernels, "base")


def killed_in_mid_compile(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """Two of the jobs die by SIGKILL inside ptxas, holding half an entry each; nobody else notices."""
    with CacheMount(lab, lab.fresh("store")) as mount:
        log, later = PtxasLog(lab), PtxasLog(lab)
        everyone = triton_jobs(lab, "first", jobs, log, kernels=kernels)
        marks = [lab.exchange / f"hang-{log.path.name}-{index}" for index in (0, 1)]
        for index, mark in enumerate(marks):
            everyone[index].environment["STORM_HANG_FILE"] = str(mark)
            everyone[index].command = [*everyone[index].command, "--first", str(index * kernels // 2)]
        running = start_all(lab, everyone)
        victims, others = running[:2], running[2:]
        go_all(victims)
        deadline = time.monotonic() + 60
        while not all(mark.exists() for mark in marks) and time.monotonic() < deadline:
            time.sleep(0.02)
        verdict.expect(all(mark.exists() for mark in marks), "the victims never reached ptxas")
        go_all(others)
        time.sleep(1.0)  # the others are to meet what the victims have begun
        for victim in victims:
            victim.kill()
        wall = watch(lab, others, "after the kill", 180)
        survivors = Storm([one.finish(1) for one in others], wall)
        for victim in victims:
            victim.finish(10)
        expect_clean(verdict, survivors, "the other jobs")
        end_jobs(mount, everyone)
        again, figures = measured_pass(
            lab, mount, triton_jobs(lab, "again", jobs, later, kernels=kernels), later, "next pass"
        )
        verdict.figures = figures
        expect_clean(verdict, again, "next pass")
        compiled = set(log.digests() + later.digests())
        expect_cubins(verdict, mount.base, [survivors, again], compiled, kernels, "base")


class Cleaners:
    """A cleaning job under way all the time. Each lives a second: what one removed from its view
    stays removed there, so that it soon has nothing left to do."""

    def __init__(self, lab: Lab, cache: str | None) -> None:
        self.lab = lab
        self.cache = cache
        self.removed = 0
        self.names: list[str] = []
        self.complaints: list[str] = []
        self._current: Running | None = None
        self._since = 0.0

    def tend(self) -> None:
        if self._current and time.monotonic() - self._since > 1.0:
            self.stop()
        if not self._current:
            name = f"cleaner-{len(self.names)}"
            self.names.append(name)
            environment = {} if self.cache else preload(self.lab, name)
            root = self.cache or "/ci-cache/triton"
            command = [self.lab.python, self.lab.stage / "cleaner.py", root]
            self._current = Running(self.lab, Job(name, CLEANER_UID, command, environment))
            self._current.wait_ready()
            self._since = time.monotonic()

    def stop(self) -> None:
        if not self._current:
            return
        self._current.end_input()
        result = self._current.finish(30)
        self._current = None
        self.removed += result.report["calls"] if result.report else 0
        # On a plain folder it fails too; in its own view nobody interferes with it.
        self.complaints += Storm([result], 0.0).complaints()


def cleaner(
    lab: Lab, verdict: Verdict, *, jobs: int, kernels: int, passes: int, plain: bool = False
) -> None:
    """While jobs compile and reload, another one removes a key folder every 50 ms in what it sees."""
    if plain:
        folder = shared_folder(lab, "cleaned")
        log = PtxasLog(lab)
        done, cleaners = storm_with_cleaners(lab, log, jobs, kernels, passes, str(folder))
        verdict.figures = {**figures_of(done, log), "removed": cleaners.removed}
        return
    with CacheMount(lab, lab.fresh("store")) as mount:
        log = PtxasLog(lab)
        done, cleaners = storm_with_cleaners(lab, log, jobs, kernels, passes, None)
        for name in cleaners.names:
            mount.end_job(name)
        verdict.figures = {**figures_of(done, log), "removed": cleaners.removed}
        expect_clean(verdict, done, "the jobs")
        verdict.complaints += [f"the cleaner itself: {line}" for line in cleaners.complaints]
        verdict.expect(cleaners.removed > 0, "the cleaner found nothing to remove")
        compiled = set(log.digests())
        expect_cubins(verdict, mount.base, [done], compiled, kernels, "base")


def storm_with_cleaners(
    lab: Lab, log: PtxasLog, jobs: int, kernels: int, passes: int, cache: str | None
) -> tuple[Storm, Cleaners]:
    cleaners = Cleaners(lab, cache)
    arguments = ("--passes", str(passes))
    everyone = triton_jobs(lab, "job", jobs, log, kernels=kernels, cache=cache, arguments=arguments)
    running = start_all(lab, everyone)
    go_all(running)
    start = time.monotonic()
    while any(one.running for one in running) and time.monotonic() - start < 180:
        cleaners.tend()
        lab.progress.tick(f"with a cleaner: {sum(one.calls for one in running)} calls done")
        time.sleep(0.05)
    wall = time.monotonic() - start
    cleaners.stop()
    return Storm([one.finish(1) for one in running], wall), cleaners


def container_jobs(
    lab: Lab, mount: CacheMount, prefix: str, count: int, log: PtxasLog, kernels: int, box: Box
) -> list[Job]:
    """As `sbatch` with enroot: the mount bound in, LD_PRELOAD and CACHESHIM_JOB in the job script."""
    jobs = triton_jobs(lab, prefix, count, log, kernels=kernels, box=box)
    for job in jobs:
        job.cache = mount.mount_point
    return jobs


def containers(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int, box: Box) -> None:
    """Jobs in containers find the shared cache in place of ~/.triton/cache of their own /root."""
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
    """As `docker run -v /ci-cache/.jobs/ID:/ci-cache -e TRITON_CACHE_DIR=/ci-cache/triton`."""
    jobs = []
    for index in range(count):
        name = f"{prefix}-{index}"
        mount.command("job", "start", name, "--mount", mount.mount_point)
        command = [lab.python, lab.stage / "worker.py", "--kernels", str(kernels)]
        environment = {"TRITON_CACHE_DIR": "/ci-cache/triton", **log.environment()}
        view = mount.mount_point / ".jobs" / name
        jobs.append(Job(name, FIRST_UID + index, command, environment, Box.CONTAINER, view))
    return jobs


def bound_views(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """Containers that see one job's view as /ci-cache and know nothing else of cacheshim."""
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


def putter_jobs(
    lab: Lab,
    python: Path,
    prefix: str,
    count: int,
    arguments: tuple[str, ...],
    *,
    cache: str | None = None,
    box: Box = Box.PIDS,
    bound: Path | None = None,
) -> list[Job]:
    jobs = []
    for index in range(count):
        name = f"{prefix}-{index}"
        environment = {"TRITON_CACHE_DIR": cache} if cache else preload(lab, name)
        command = [python, lab.stage / "putter.py", "--job", name, *arguments]
        jobs.append(Job(name, FIRST_UID + index, command, environment, box, bound))
    return jobs


def whole_entries(lab: Lab, verdict: Verdict, *, jobs: int, keys: int) -> None:
    """Jobs write the same keys, contents differing; a ninth reads the base all the while, a tenth a
    view: each entry seen is all of one job's."""
    with CacheMount(lab, lab.fresh("store")) as mount:
        mount.base.mkdir(exist_ok=True)
        reader = [lab.python, lab.stage / "reader.py"]
        readers = [
            Job("reader-base", READER_UID, [*reader, mount.base], {}, Box.PLAIN),
            Job("reader-view", READER_UID, [*reader, "/ci-cache/triton"], preload(lab, "reader-view")),
        ]
        writers = putter_jobs(lab, lab.python, "writer", jobs, ("--keys", str(keys)))
        reading = start_all(lab, readers)
        done = storm(lab, writers, "whole entries")
        time.sleep(0.2)
        for one in reading:
            one.end_input()
        seen = Storm([one.finish(60) for one in reading], 0.0)
        end_jobs(mount, writers)
        expect_clean(verdict, done, "writers")
        expect_clean(verdict, seen, "readers")
        verdict.expect(not temporary_names(mount.base), "temporary names in the base")
        reports = [one.report for one in seen.results if one.report]
        verdict.figures = {
            "calls": done.calls,
            "looks": [report["calls"] for report in reports],
            "entries_seen": [report["entries"] for report in reports],
            "wall_s": round(done.wall, 2),
            "publish_conflicts": mount.stats().get("publish_conflicts"),
        }
        for report in reports:
            verdict.expect(report["entries"] == keys, f"a reader saw {report['entries']} of {keys} entries")


OLD_TRITON_SKIP = "Triton 2.1.0 has no wheel for this system's Python (newer than 3.11)"


def old_triton_plain(lab: Lab, verdict: Verdict, *, jobs: int, keys: int) -> None:
    """Control: names by pid and a seeded random number collide on a plain folder, even for one user."""
    if not lab.python_old:
        verdict.skipped = OLD_TRITON_SKIP
        return
    folder = shared_folder(lab, "plain-old")
    arguments = ("--keys", str(keys), "--look-first", "--seed", "1")
    everyone = putter_jobs(lab, lab.python_old, "old", jobs, arguments, cache=str(folder))
    for job in everyone:
        job.uid = FIRST_UID
    done = storm(lab, everyone, "Triton 2.1.0, plain folder")
    verdict.figures = {"calls": done.calls, "errors": len(done.errors), "kinds": error_kinds(done)}
    verdict.expect(bool(done.errors), "no error on a plain folder: this storm is too weak to show any")


def old_triton(lab: Lab, verdict: Verdict, *, jobs: int, keys: int) -> None:
    """Triton 2.1.0's cache manager in containers: temporary names are equal in all jobs."""
    if not lab.python_old:
        verdict.skipped = OLD_TRITON_SKIP
        return
    with CacheMount(lab, lab.fresh("store")) as mount:
        arguments = ("--keys", str(keys), "--look-first", "--seed", "1")
        make = partial(
            putter_jobs, lab, lab.python_old, box=Box.CONTAINER, bound=mount.mount_point
        )
        everyone = make("old", jobs, arguments)
        done = storm(lab, everyone, "Triton 2.1.0")
        end_jobs(mount, everyone)
        warm = storm(lab, make("later", 1, arguments), "Triton 2.1.0, warm")
        verdict.figures = {"calls": done.calls, "hits": done.hits, "warm_hits": warm.hits}
        expect_clean(verdict, done, "jobs")
        expect_clean(verdict, warm, "later job")
        verdict.expect(warm.hits == keys, f"later job: {warm.hits} hits for {keys} keys")
        verdict.expect(not temporary_names(mount.base), "temporary names in the base")


def daemon_killed(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """SIGKILL to the daemon in mid-storm: calls may fail, with a clear error; none hangs; the base
    stays sound and serves the next mount."""
    store = lab.fresh("store")
    log, later = PtxasLog(lab), PtxasLog(lab)
    mount = CacheMount(lab, store)
    try:
        mount.mount()
        running = start_all(lab, triton_jobs(lab, "hit", jobs, log, kernels=kernels))
        go_all(running)
        wait_for_calls(running, kernels)
        for pid in processes("cacheshim"):
            os.kill(pid, signal.SIGKILL)
        wall = watch(lab, running, "after the daemon's death", 120)
        done = Storm([one.finish(0.1) for one in running], wall)
        verdict.expect(
            not any(one.trouble for one in done.results),
            f"jobs did not come to an end: {[one.trouble for one in done.results if one.trouble]}",
        )
        verdict.figures = {"errors": len(done.errors), "kinds": error_kinds(done)}
    except BaseException:
        mount.force_away()
        raise
    expect_whole_entries(verdict, store / "triton", "after the kill")
    # Over the dead one: `cacheshim mount` is to free it itself.
    with CacheMount(lab, store) as mount:
        again, _ = measured_pass(
            lab, mount, triton_jobs(lab, "again", jobs, later, kernels=kernels), later, "next mount"
        )
        expect_clean(verdict, again, "next mount")
        compiled = set(log.digests() + later.digests())
        expect_cubins(verdict, mount.base, [again], compiled, kernels, "base")


def unmounted_in_use(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int, box: Box) -> None:
    """`cacheshim unmount` in mid-storm. In this namespace it is refused, in one line, as long as a file
    is open; jobs in mount namespaces of their own keep what they have. No job notices either."""
    log = PtxasLog(lab)
    mount = CacheMount(lab, lab.fresh("store"))
    try:
        mount.mount()
        running = start_all(lab, triton_jobs(lab, "job", jobs, log, kernels=kernels, box=box))
        go_all(running)
        wait_for_calls(running, kernels)
        if box is Box.PLAIN:
            expect_refusal(verdict, mount)
        else:
            mount.unmount()
        wall = watch(lab, running, "after the attempt", 120)
        done = Storm([one.finish(0.1) for one in running], wall)
        verdict.figures |= {"errors": len(done.errors), "kinds": error_kinds(done)}
        expect_clean(verdict, done, "the jobs")
        if box is Box.PLAIN:
            mount.unmount()
    finally:
        mount.force_away()
    compiled = set(log.digests())
    expect_cubins(verdict, mount.base, [done], compiled, kernels, "base")


def expect_refusal(verdict: Verdict, mount: CacheMount) -> None:
    held = os.open(mount.mount_point / ".cacheshim/version", os.O_RDONLY)
    try:
        mount.unmount()
        verdict.complaints.append("unmount took away a mount in use")
    except CommandFailed as error:
        verdict.figures["unmount"] = str(error)
        verdict.expect("exit 1:" in str(error), f"not exit code 1: {error}")
        verdict.expect("\n" not in str(error), f"more than one line of error: {error}")
    finally:
        os.close(held)


def wait_for_calls(running: list[Running], count: int) -> None:
    """Returns in mid-storm: once that many calls are done."""
    deadline = time.monotonic() + 60
    while sum(one.calls for one in running) < count and time.monotonic() < deadline:
        time.sleep(0.01)


def full_disk(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """The store is a tmpfs of 1 MiB: jobs see ENOSPC, and nothing half-written is in the base; with
    room again, everything works."""
    store = lab.fresh("small-store")
    run("mount", "-t", "tmpfs", "-o", "size=1m,mode=0755", "tmpfs", store)
    log, later = PtxasLog(lab), PtxasLog(lab)
    with CacheMount(lab, store) as mount:
        everyone = triton_jobs(lab, "full", jobs, log, kernels=kernels)
        done = storm(lab, everyone, "full disk")
        kinds = Counter(error["errno"] for error in done.errors)
        verdict.figures = {"errors": len(done.errors), "errnos": {str(k): v for k, v in kinds.items()}}
        verdict.expect(bool(done.errors), "no error at all: the store was not full")
        verdict.expect(
            set(kinds) <= {errno.ENOSPC}, f"errors other than ENOSPC: {error_lines(done)}"
        )
        verdict.expect(
            not any(one.trouble for one in done.results),
            f"jobs did not come to an end: {[one.trouble for one in done.results if one.trouble]}",
        )
        expect_whole_entries(verdict, mount.base, "while full")
        for job in everyone:
            mount.command("job", "end", job.name, "--failure", "--mount", mount.mount_point)
        run("mount", "-o", "remount,size=256m", store)
        again, _ = measured_pass(
            lab, mount, triton_jobs(lab, "again", jobs, later, kernels=kernels), later, "with room again"
        )
        expect_clean(verdict, again, "with room again")
        compiled = set(log.digests() + later.digests())
        expect_cubins(verdict, mount.base, [again], compiled, kernels, "base")


def error_lines(done: Storm) -> list[str]:
    return [f"{e['type']} errno {e['errno']} {e['path'] or e['message']}" for e in done.errors[:5]]


def small() -> list[tuple[str, Scenario]]:
    """What scripts/test runs: every scenario once, in a size for two cores."""
    return [
        ("plain folder shows the errors", partial(plain_folder, jobs=8, kernels=8)),
        ("8 users, PID namespaces, cold then warm", partial(cold_then_warm, jobs=8, kernels=24)),
        ("8 users, no namespaces, cold then warm",
         partial(cold_then_warm, jobs=8, kernels=8, box=Box.PLAIN)),
        ("two of eight killed in mid-compile", partial(killed_in_mid_compile, jobs=8, kernels=12)),
        ("a cleaner in its own view", partial(cleaner, jobs=4, kernels=48, passes=2)),
        ("containers, library alone", partial(containers, jobs=8, kernels=12, box=Box.CONTAINER)),
        ("containers where the user is root",
         partial(containers, jobs=4, kernels=8, box=Box.CONTAINER_AS_ROOT)),
        ("containers with a bound view, no library", partial(bound_views, jobs=8, kernels=12)),
        ("whole entries", partial(whole_entries, jobs=8, keys=48)),
        ("Triton 2.1.0 on a plain folder shows the errors", partial(old_triton_plain, jobs=8, keys=48)),
        ("Triton 2.1.0 in containers", partial(old_triton, jobs=8, keys=48)),
        ("daemon killed", partial(daemon_killed, jobs=4, kernels=12)),
        ("unmounted while in use", partial(unmounted_in_use, jobs=4, kernels=12, box=Box.PLAIN)),
        ("unmounted while other namespaces use it",
         partial(unmounted_in_use, jobs=4, kernels=12, box=Box.PIDS)),
        ("full disk", partial(full_disk, jobs=4, kernels=12)),
    ]


def full() -> list[tuple[str, Scenario]]:
    """What scripts/test --long runs besides: the bars in their full size."""
    rounds = [
        (f"8 × 24, PID namespaces, cold then warm, round {number} of 5",
         partial(cold_then_warm, jobs=8, kernels=24))
        for number in range(1, 6)
    ]
    return [
        *rounds,
        ("two of eight killed in mid-compile, 24 kernels",
         partial(killed_in_mid_compile, jobs=8, kernels=24)),
        ("a cleaner on a plain folder, for comparison",
         partial(cleaner, jobs=8, kernels=24, passes=2, plain=True)),
        ("a cleaner in its own view, 8 jobs", partial(cleaner, jobs=8, kernels=96, passes=3)),
        ("containers, library alone, 24 kernels",
         partial(containers, jobs=8, kernels=24, box=Box.CONTAINER)),
        ("containers where the user is root, 24 kernels",
         partial(containers, jobs=8, kernels=24, box=Box.CONTAINER_AS_ROOT)),
        ("containers with a bound view, 24 kernels", partial(bound_views, jobs=8, kernels=24)),
        ("whole entries, 400 keys", partial(whole_entries, jobs=8, keys=400)),
        ("Triton 2.1.0 in containers, 200 keys", partial(old_triton, jobs=8, keys=200)),
        ("daemon killed, 8 jobs", partial(daemon_killed, jobs=8, kernels=24)),
    ]
