# SPDX-License-Identifier: Apache-2.0
"""Storms with faults: killed jobs, cleaned caches, a dead daemon, a full disk."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import Counter

from cachemount import CacheMount, CommandFailed, processes
from cases import (
    PtxasLog,
    Verdict,
    end_jobs,
    expect_clean,
    expect_cubins,
    expect_whole_entries,
    preload,
    triton_jobs,
)
from jobs import FIRST_UID, Box, Command, Job, Running, Storm, go_all, start_all, storm, watch
from lab import Lab, run
from passes import error_kinds, error_lines, figures_of, measured_pass, shared_directory

CLEANER_UID = FIRST_UID + 90


def killed_in_mid_compile(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """Kills two jobs with SIGKILL while they run ptxas and their entries are incomplete; verifies that no other job is
    affected."""
    with CacheMount(lab, lab.fresh("store")) as mount:
        log, later = PtxasLog(lab), PtxasLog(lab)
        everyone = triton_jobs(lab, "first", jobs, log, kernels=kernels)
        marks = [lab.exchange / f"hang-{log.path.name}-{index}" for index in (0, 1)]
        for index, mark in enumerate(marks):
            everyone[index].environment["STORM_HANG_FILE"] = str(mark)
            everyone[index].command = [
                *everyone[index].command,
                "--first",
                str(index * kernels // 2),
            ]
        running = start_all(lab, everyone)
        victims, others = running[:2], running[2:]
        go_all(victims)
        deadline = time.monotonic() + 60
        while not all(mark.exists() for mark in marks) and time.monotonic() < deadline:
            time.sleep(0.02)
        verdict.expect(all(mark.exists() for mark in marks), "the victims never reached ptxas")
        go_all(others)
        time.sleep(1.0)  # the other jobs reach the entries that the victims have begun
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
    """Runs one cleaning job after another, each for a second. An entry that a job has removed stays absent from the
    job's view, so a single job would soon find nothing to remove."""

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
            command: Command = [self.lab.python, self.lab.stage / "cleaner.py", root]
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
        # A cleaning job must have no errors in its own view. In a plain directory it may, because other jobs interfere.
        self.complaints += Storm([result], 0.0).complaints()


def cleaner(
    lab: Lab, verdict: Verdict, *, jobs: int, kernels: int, passes: int, plain: bool = False
) -> None:
    """Runs jobs that compile and load kernels, while another job removes a key directory of its own view every 50 ms:
    the jobs must have no errors. With `plain`, uses a plain shared directory, and only measures."""
    if plain:
        directory = shared_directory(lab, "cleaned")
        log = PtxasLog(lab)
        done, cleaners = storm_with_cleaners(lab, log, jobs, kernels, passes, str(directory))
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
    arguments = ("--launcher", "--passes", str(passes))
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


def daemon_killed(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """Kills the daemon with SIGKILL during the storm. Calls may fail with an error, but no job may hang, and the next
    mount must serve a correct base."""
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
    # The dead mount still exists: `cacheshim mount` must remove it.
    with CacheMount(lab, store) as mount:
        again, _ = measured_pass(
            lab, mount, triton_jobs(lab, "again", jobs, later, kernels=kernels), later, "next mount"
        )
        expect_clean(verdict, again, "next mount")
        compiled = set(log.digests() + later.digests())
        expect_cubins(verdict, mount.base, [again], compiled, kernels, "base")


def unmounted_in_use(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int, box: Box) -> None:
    """Runs `cacheshim unmount` during the storm. If the jobs run in this mount namespace, the command must fail with a
    one-line error while a file is open. If the jobs have their own mount namespaces, the command succeeds, and the jobs
    keep their mounts. In both cases no job may be affected."""
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
    """Returns when the jobs have made `count` calls, or after 60 s."""
    deadline = time.monotonic() + 60
    while sum(one.calls for one in running) < count and time.monotonic() < deadline:
        time.sleep(0.01)


def full_disk(lab: Lab, verdict: Verdict, *, jobs: int, kernels: int) -> None:
    """Runs jobs on a store of 256 KiB (a tmpfs): they must get ENOSPC and no other error, and the base must contain no
    incomplete entry. After the tmpfs is enlarged, the next jobs must have no errors."""
    store = lab.fresh("small-store")
    run("mount", "-t", "tmpfs", "-o", "size=256k,mode=0755", "tmpfs", store)
    log, later = PtxasLog(lab), PtxasLog(lab)
    with CacheMount(lab, store) as mount:
        everyone = triton_jobs(lab, "full", jobs, log, kernels=kernels)
        done = storm(lab, everyone, "full disk")
        kinds = Counter(error["errno"] for error in done.errors)
        verdict.figures = {
            "errors": len(done.errors),
            "errnos": {str(k): v for k, v in kinds.items()},
        }
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
            lab,
            mount,
            triton_jobs(lab, "again", jobs, later, kernels=kernels),
            later,
            "with room again",
        )
        expect_clean(verdict, again, "with room again")
        compiled = set(log.digests() + later.digests())
        expect_cubins(verdict, mount.base, [again], compiled, kernels, "base")
