# SPDX-License-Identifier: Apache-2.0
"""Creates cgroups, and puts processes into them."""

import contextlib
import os
import pathlib
import uuid


def find_tree():
    """Returns the mount point of a cgroup file system in which this process can create cgroups, or None."""
    return next((line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines()
                 if line.split()[2] in ("cgroup", "cgroup2")
                 and os.access(line.split()[1], os.W_OK) and _can_make_in(line.split()[1])), None)


def _can_make_in(top):
    probe = pathlib.Path(top, f"cacheshim-probe-{uuid.uuid4()}")
    try:
        probe.mkdir()
        probe.rmdir()
        return (pathlib.Path(top) / "cgroup.procs").exists()
    except OSError:
        return False


@contextlib.contextmanager
def directories(top, own):
    """Yields make("a/job_1", owner), which creates the cgroup OWN/a/job_1 and its parents below `top`, makes a user the
    owner of OWN/a/job_1, and returns the path of its cgroup.procs. Removes the cgroups at the end."""
    made = []

    def make(path, owner=0):
        directory = pathlib.Path(top, own)
        for part in ("", *path.split("/")):
            directory = directory / part
            if not directory.exists():
                directory.mkdir()
                made.append(directory)
        os.chown(directory, owner, owner)
        return directory / "cgroup.procs"

    try:
        yield make
    finally:
        for directory in reversed(made):
            for pid in (directory / "cgroup.procs").read_text().split():
                pathlib.Path(top, "cgroup.procs").write_text(pid)
            directory.rmdir()


def put_into(procs, process):
    procs.write_text(str(process.pid))
