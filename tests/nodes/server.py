# SPDX-License-Identifier: Apache-2.0
"""An NFS 4.2 server: nfs-ganesha, which serves a directory from user space."""

import time

import network

START_TIMEOUT_S = 30
EXPORT = "/export"  # the name that clients mount

# The server's attribute cache is off, so clients see changes by programs on the server's machine immediately, as with
# the kernel's server. Ganesha ends its grace period immediately if it knows no client that could reclaim locks.
_CONFIGURATION = """
NFS_CORE_PARAM {{ Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }}
NFSV4 {{
    Minor_Versions = 2; Only_Numeric_Owners = true; Lease_Lifetime = {lease_s}; Grace_Period = {lease_s};
    RecoveryBackend = fs; RecoveryRoot = "{work}/recovery";
}}
EXPORT {{
    Export_Id = 1; Path = "{directory}"; Pseudo = "{export}"; Access_Type = RW; Squash = No_Root_Squash;
    SecType = sys; Transports = TCP; Attr_Expiration_Time = 0; FSAL {{ Name = VFS; }}
}}
LOG {{ Default_Log_Level = EVENT; }}
"""


class Server:
    """Exports `directory`, which is on a local file system. The server releases a dead client's locks when the client's
    lease ends, `lease_s` seconds after the client's last message. `work` is a directory for the server's files.

    `machine`, a network.Machine, can be paused to simulate a server that does not answer.
    """

    def __init__(self, net, directory, work, lease_s):
        self._net, self._work = net, work
        self.directory, self.address = directory, network.BRIDGE_ADDRESS
        self.machine = None
        (work / "recovery").mkdir(parents=True, exist_ok=True)
        (work / "ganesha.conf").write_text(
            _CONFIGURATION.format(lease_s=lease_s, work=work, directory=directory, export=EXPORT))

    def start(self):
        """Starts the server; returns when clients can connect."""
        # An empty /run hides the machine's D-Bus, on which ganesha would register.
        script = 'mount -t tmpfs tmpfs /run && exec ganesha.nfsd -F -L STDOUT -f "$1" -p /run/ganesha.pid'
        self.machine = self._net.start(["sh", "-c", script, "sh", self._work / "ganesha.conf"],
                                       self._work / "ganesha.log")
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._accepts():
            if not self.machine.is_running() or time.monotonic() > deadline:
                raise RuntimeError(f"the NFS server does not start:\n{self._log()[-4000:]}")
            time.sleep(0.05)

    def start_again_after_a_crash(self):
        """Starts the server if it has crashed, which ganesha 4.3 rarely does when a client connects, and prints the end
        of its log."""
        if self.machine.is_running():
            return
        print("the NFS server has crashed; its log:", self._log()[-2000:], sep="\n")
        self.start()

    def kill(self):
        """Kills the server. start() starts it again, and clients can then reclaim their locks."""
        if self.machine:
            self.machine.kill()

    def _log(self):
        return (self._work / "ganesha.log").read_text(errors="replace")

    def _accepts(self):
        with self._net.new_socket() as probe:
            return probe.connect_ex((self.address, 2049)) == 0
