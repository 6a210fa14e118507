# SPDX-License-Identifier: Apache-2.0
"""Storms through Triton's own cache manager, without compiling."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from cachemount import CacheMount
from cases import Verdict, end_jobs, expect_clean, preload, temporary_names
from jobs import FIRST_UID, Box, Command, Job, Storm, start_all, storm
from lab import Lab
from passes import error_kinds, shared_directory

READER_UID = FIRST_UID + 91


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
        command: Command = [python, lab.stage / "putter.py", "--job", name, *arguments]
        jobs.append(Job(name, FIRST_UID + index, command, environment, box, bound))
    return jobs


def whole_entries(lab: Lab, verdict: Verdict, *, jobs: int, keys: int) -> None:
    """Runs jobs that write the same keys with different contents, while one more job reads the base and another
    reads its own view: each entry must contain the files of one job only."""
    with CacheMount(lab, lab.fresh("store")) as mount:
        mount.base.mkdir(exist_ok=True)
        reader = [lab.python, lab.stage / "reader.py"]
        readers = [
            Job("reader-base", READER_UID, [*reader, mount.base], {}, Box.PLAIN),
            Job(
                "reader-view",
                READER_UID,
                [*reader, "/ci-cache/triton"],
                preload(lab, "reader-view"),
            ),
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
            verdict.expect(
                report["entries"] == 2 * keys,
                f"a reader saw {report['entries']} entries of {keys} kernels and as many launchers",
            )


def has_triton(lab: Lab, verdict: Verdict, version: str) -> bool:
    """Returns true if this version is installed; otherwise records in the verdict why the scenario is skipped."""
    if f"triton-{version}" in lab.venvs:
        return True
    verdict.skipped = f"Triton {version} has no wheel for this system's Python (newer than 3.11)"
    return False


def old_triton_plain(lab: Lab, verdict: Verdict, *, version: str, jobs: int, keys: int) -> None:
    """Verifies that the jobs of old_triton() fail in a plain directory, even as one user: Triton 2.1 makes temporary
    names from the pid and a seeded random number, which are the same in all jobs."""
    if not has_triton(lab, verdict, version):
        return
    directory = shared_directory(lab, "plain-old")
    arguments = ("--keys", str(keys), "--look-first", "--seed", "1")
    python = lab.python_of(f"triton-{version}")
    everyone = putter_jobs(lab, python, "old", jobs, arguments, cache=str(directory))
    for job in everyone:
        job.uid = FIRST_UID
    done = storm(lab, everyone, f"Triton {version}, plain directory")
    verdict.figures = {"calls": done.calls, "errors": len(done.errors), "kinds": error_kinds(done)}
    verdict.expect(
        bool(done.errors), "no error on a plain directory: this storm is too weak to show any"
    )


def old_triton(lab: Lab, verdict: Verdict, *, version: str, jobs: int, keys: int) -> None:
    """Runs an older Triton's cache manager in containers, where Triton 2.1 chooses the same temporary names in all
    jobs; verifies that no job fails, and that a later job finds all keys."""
    if not has_triton(lab, verdict, version):
        return
    python = lab.python_of(f"triton-{version}")
    with CacheMount(lab, lab.fresh("store")) as mount:
        arguments = ("--keys", str(keys), "--look-first", "--seed", "1")
        make = partial(putter_jobs, lab, python, box=Box.CONTAINER, bound=mount.mount_point)
        everyone = make("old", jobs, arguments)
        done = storm(lab, everyone, f"Triton {version}")
        end_jobs(mount, everyone)
        warm = storm(lab, make("later", 1, arguments), f"Triton {version}, warm")
        verdict.figures = {"calls": done.calls, "hits": done.hits, "warm_hits": warm.hits}
        expect_clean(verdict, done, "jobs")
        expect_clean(verdict, warm, "later job")
        verdict.expect(warm.hits == keys, f"later job: {warm.hits} hits for {keys} keys")
        verdict.expect(not temporary_names(mount.base), "temporary names in the base")
