# SPDX-License-Identifier: Apache-2.0
"""The errors that processes with locks get when the daemon dies (docs/locks.md, "When the daemon dies")."""

import errno
import fcntl

import pytest
from jobs import threads, wait_until, waits_for_an_answer

CALLS = {"flock": ("fcntl.flock", fcntl.LOCK_EX, fcntl.LOCK_UN),
         "fcntl": ("fcntl.lockf", fcntl.LOCK_EX, fcntl.LOCK_UN)}


def code_of(call):
    with pytest.raises(OSError) as failed:
        call()
    return failed.value.errno


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("process_of", ["job_of", "shimmed_job_of"])
def test_a_waiter_gets_econnaborted_and_a_holder_enotconn(request, mount, kind, process_of):
    start = request.getfixturevalue(process_of)
    name, lock, unlock = CALLS[kind]
    holder, waiter = start(mount, "one", 20001), start(mount, "one", 20001)
    holder("os.makedirs", holder.path("mine"), exist_ok=True)
    fds = [job("os.open", job.path("mine/file"), 0o102, 0o644) for job in (holder, waiter)]
    holder(name, fds[0], lock)
    waiter.start(name, fds[1], lock)
    wait_until(lambda: any(waits_for_an_answer(thread) for thread in threads(waiter.pid)),
               what="the wait for the lock")
    mount.kill_daemon()
    assert code_of(waiter.result) == errno.ECONNABORTED
    assert code_of(lambda: holder(name, fds[0], unlock)) == errno.ENOTCONN
    assert code_of(lambda: holder(name, fds[0], lock | fcntl.LOCK_NB)) == errno.ENOTCONN
    mount.detach()
    mount.mount()
    assert code_of(lambda: holder(name, fds[0], unlock)) == errno.ENOTCONN
    again = waiter("os.open", waiter.path("mine/file"), 0o102, 0o644)
    waiter(name, again, lock | fcntl.LOCK_NB)
