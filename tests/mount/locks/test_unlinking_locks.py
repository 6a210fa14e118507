# SPDX-License-Identifier: Apache-2.0
"""Two processes take a lock in turn that unlinks its file at each release, as filelock 3.24 to 3.29 does.

On a local file system no call of it fails and nobody meets another holder.
"""

import os

import pytest

NAME = "triton/KEY/lock"
COUNT = 500


class Raw:
    """A process beside the mount, of root, in place of a job."""

    def __init__(self, job, mount):
        self._job, self._mount = job, mount
        self.start, self.result = job.start, job.result

    def path(self, name):
        return str(self._mount.base(name))


@pytest.fixture
def pair(mount, request, job_of, shimmed_job_of):
    """The two processes of this test's kind."""
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
def test_no_call_fails_and_one_holds_it_at_a_time(pair, scratch):
    directory = scratch / "guard"
    directory.mkdir()
    directory.chmod(0o777)
    for process in pair:
        process.start("lock_and_unlink", process.path(NAME), str(directory / "held"), COUNT)
    for process in pair:
        assert process.result(timeout=90) == (COUNT, {})
