# SPDX-License-Identifier: Apache-2.0
"""The privileges of processes, and those that docs/security.md and the systemd unit list for the daemon."""

import pathlib
import re

from jobs import threads
from mounts import REPOSITORY

UNIT = REPOSITORY / "integrations/systemd/cacheshim.service"
SECURITY = REPOSITORY / "docs/security.md"

# In the order of their numbers in linux/capability.h.
_NAMES = ("CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE "
          "NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT "
          "SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE "
          "AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ "
          "PERFMON BPF CHECKPOINT_RESTORE").split()


def names_in(mask):
    """Returns the names of the capabilities in a mask, such as {"CAP_CHOWN"}."""
    return {f"CAP_{name}" for bit, name in enumerate(_NAMES) if mask >> bit & 1}


def status_of(task):
    """Returns the fields of the `status` file of a process or thread, given its directory in /proc."""
    lines = pathlib.Path(task, "status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def statuses_of(daemon):
    """Returns the fields of each thread of a daemon and of its children, such as the guard of its connection."""
    children = {pid for thread in threads(daemon) for pid in (thread / "children").read_text().split()}
    return [status_of(thread) for pid in (daemon, *children) for thread in threads(pid)]


def capabilities(status, which):
    """Returns the names of the capabilities in the set `which` ("Prm", "Eff", "Bnd", "Inh", "Amb") of a process."""
    return names_in(int(status[f"Cap{which}"], 16))


def directives(unit=UNIT):
    """Returns the unit's directives as {name: [value, …]}."""
    found = {}
    for line in unit.read_text().replace("\\\n", " ").splitlines():
        name, is_directive, value = line.partition("=")
        if is_directive and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def capabilities_of_the_unit():
    return set(" ".join(directives()["CapabilityBoundingSet"]).split())


def capabilities_in_the_document():
    """Returns the capabilities that the daemon always needs, those that it needs with owner=keep, and those that it
    needs with a remote tier."""
    tables = [set(re.findall(r"^\| `(CAP_[A-Z_]+)` \|", table, re.M)) for table in SECURITY.read_text().split("\n\n")]
    always, only_with_keep, only_with_remote = filter(None, tables)
    return always, always | only_with_keep, always | only_with_remote
