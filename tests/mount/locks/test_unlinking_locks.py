# SPDX-License-Identifier: Apache-2.0
"""Two processes take turns with a lock whose file is unlinked at each release, as filelock 3.24 to 3.29 do.

As on a local file system, no call may fail, and there may never be two holders.
"""

import os

import pytest

NAME = "triton/KEY/lock"
COUNT = 500


class Raw:
    """A process of root outside the mount, used like a job's process."""

    def __init__(self, job, mount):
        self._job, self._mount = job, mount
        self.start, self.result = job.start, job.result

    def path(self, name):
        return str(self._mount.base(name))


@pytest.fixture
def pair(mount, request, job_of, shimmed_job_of):
    """The two processes that this test's parameter selects."""
    os.makedirs(mount.base("triton/KEY"))
    kind = request.param
    if kind == "two views":
        return job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    if kind == "one view":
        return job_of(mount, "one", 20001), job_of(mount, "one", 20001)
    if kind == "view and store":
        return job_of(mount, "one", 20001), Raw(job_of(mount, None, 0), mount)
    if kind == "two preloaded views":
        return shimmed_job_of(mount, "one", 20001), shimmed_job_of(mount, "two", 20002)
    assert kind == "preloaded and store"
    return shimmed_job_of(mount, "one", 20001), Raw(job_of(mount, None, 0), mount)


@pytest.mark.parametrize("pair", ["two views", "one view", "view and store", "two preloaded views",
                                  "preloaded and store"], indirect=True)
def test_no_call_fails_and_there_is_one_holder_at_a_time(pair, scratch):
    directory = scratch / "guard"
    directory.mkdir()
    directory.chmod(0o777)
    for process in pair:
        process.start("lock_and_unlink", process.path(NAME), str(directory / "held"), COUNT)
    for process in pair:
        assert process.result(timeout=90) == (COUNT, {})
