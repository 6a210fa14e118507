# SPDX-License-Identifier: Apache-2.0
"""A user whose processes block every read of their /proc/PID/environ delays no other user.

The daemon reads this file to learn the job of a process, and for this read the kernel takes the mmap lock of the
process. The attacker's processes hold their mmap locks in page faults on a file of the attacker's own FUSE file system,
which never returns the data."""

import time

import pytest

USER = 20002
SOON_S = 5  # a deadline, not a measurement: without the defense, the calls hang until the attacker lets go
PROCESSES = 12  # more than the number of the daemon's receivers for one core

pytestmark = pytest.mark.usefixtures("device")


def test_a_blocked_read_of_an_environment_delays_no_other_user(mount, attacker, job_of):
    user = job_of(mount, "user", USER)
    user.put_group("KEY", {"k.cubin": b"x"})
    attacker("agent_hostile.access_with_locked_maps", str(mount.path / "triton"), PROCESSES)
    start = time.monotonic()
    for number in range(6):
        newcomer = job_of(mount, f"newcomer{number}", USER + 1 + number)
        assert newcomer.read("triton/KEY/k.cubin") == b"x"
        newcomer.put_group(f"KEY{number}", {"k.cubin": b"x"})
    assert mount.base("triton/KEY5").exists()
    assert time.monotonic() - start < SOON_S
