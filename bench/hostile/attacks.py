# SPDX-License-Identifier: Apache-2.0
"""The attacker's processes, which run beside the victim's. Each function runs until its process is killed.

attacks.py ATTACK MOUNT PREFIX runs one attack. attacks.py burn SHARE… starts a process for each share of a core.
"""

import contextlib
import itertools
import os
import sys
import time

import agent_hostile
import agent_limits

PERIOD_S = 0.01
HOLD_S = 0.5


def notifications(mount, _prefix):
    """Repeatedly makes getdents(2) hang in directories of the attacker's view. Meanwhile, the kernel holds the locks of
    these directories, so the daemon's invalidations of names there wait."""
    while True:
        child = os.fork()  # each Buffer enters a new user namespace, and at most 32 of them can be nested
        if child == 0:
            agent_hostile.hang_in_listings([f"{mount}/triton", f"{mount}/triton/KEY0"])
            time.sleep(HOLD_S)
            agent_hostile.end_buffer()
            os._exit(0)
        os.waitpid(child, 0)


def holes(mount, _prefix):
    """Publishes entries whose files are holes of 10 GiB, and requests the digest of one."""
    triton, control = f"{mount}/triton", f"{mount}/.cacheshim/control"
    os.makedirs(f"{triton}/HOLE", exist_ok=True)
    agent_hostile.make_hole(f"{triton}/HOLE/k0.cubin", 10 << 30)
    explain = b'{"op":"explain","path":"triton/HOLE/k0.cubin","job":"hostile"}'
    for number in itertools.count():
        agent_hostile.hold_requests(control, 24, explain)
        agent_hostile.publish_holes(triton, f"HOLES-{os.getpid()}-{number}", 16, 10 << 30)
        agent_hostile.close_requests()


def limits(mount, prefix):
    """Takes descriptors, locks, leases and requests until the daemon refuses more, releases them, and begins again."""
    triton = f"{mount}/triton"
    for number in itertools.count():
        agent_limits.lock_ranges(f"{triton}/locked", 20_000)
        os.makedirs(f"{triton}/{prefix}L{number}", exist_ok=True)
        agent_limits.begin_entries(f"{triton}/{prefix}L{number}", 4, 100)
        agent_limits.request_many(f"{mount}/.cacheshim/control", b'{"op":"job-wait","job":"hostile"}', 300)
        agent_limits.open_many(f"{triton}/KEY0/k0.cubin", 20_000)
        agent_limits.release_all()


def leases(mount, prefix):
    """Takes the leases of names that the victim is going to build: looks each up in a process that builds nothing."""
    for number in itertools.count():
        child = os.fork()
        if child == 0:
            entry = f"{mount}/triton/{prefix}{number}"
            with contextlib.suppress(OSError):
                os.makedirs(entry, exist_ok=True)
                os.path.exists(f"{entry}/__grp__k.json")
            time.sleep(5)
            os._exit(0)
        time.sleep(0.005)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def burn(*shares):
    """Uses CPU time: one process for each share of a core."""
    for share in shares[1:]:
        if os.fork() == 0:
            shares = (share,)
            break
    busy = float(shares[0]) * PERIOD_S
    while True:
        began = time.monotonic()
        while time.monotonic() - began < busy:
            pass
        time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))


globals()[sys.argv[1]](*sys.argv[2:])
