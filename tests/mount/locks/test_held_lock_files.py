# SPDX-License-Identifier: Apache-2.0
"""The daemon limits its descriptors for lock files, regardless of how many lock files a job looks up."""

import fcntl
import os

from jobs import open_files

COUNT = 1500  # more than HeldObjects::kMostHeld
MOST = 1024 + 100  # HeldObjects::kMostHeld, and room for the daemon's other open files


def test_looked_up_lock_files_use_few_descriptors_and_can_be_locked_again(mount, job_of):
    job = job_of(mount, "one", 20001)
    job("os.makedirs", job.path("inductor/locks"))
    names = [job.path(f"inductor/locks/{number}.lock") for number in range(COUNT)]
    for name in names:
        job("write_file", name, b"")
    held = len(list(open_files(mount.daemon_pid())))
    assert held < MOST
    # The daemon has closed its descriptors of the first files. It must open these files again by name, and their locks
    # must still exclude other processes.
    fd = job("os.open", names[0], os.O_RDWR)
    job("fcntl.flock", fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(mount.base("inductor/locks/0.lock"), "rb") as raw:
        try:
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise AssertionError("a raw process got the lock too")
        except BlockingIOError:
            pass
    # A process's open file keeps working after the daemon has closed its own descriptor and the name is removed.
    for name in names[1:]:
        job("os.stat", name)
    os.unlink(mount.base("inductor/locks/0.lock"))
    assert job("os.fstat", fd).st_nlink == 0
