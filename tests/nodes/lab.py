# SPDX-License-Identifier: Apache-2.0
"""Simulates several machines on this one: an NFS 4.2 server, and nodes with their own kernels that mount its export.

    with Lab(work) as lab:
        lab.nodes[0].run("touch /export/a", check=True)
        assert (lab.export / "a").exists()

Needs root, and the Debian packages nfs-ganesha, nfs-ganesha-vfs, nfs-common, user-mode-linux, iproute2, util-linux. All
processes, mounts, and network devices are in namespaces that end with this process, even if it is killed.
"""

import network
import node
import server

MOUNT_POINT = "/export"
LOCAL = "/local"  # a file system that only this node sees; see node_main.py
POINT = f"{LOCAL}/mnt"  # where tests mount a store
LEASE_S = 10


class Lab:
    """An NFS server and its nodes. `work` is an empty directory on a local file system.

    nodes   a list of Node, one for each of `names`
    export  the directory that the server exports; the nodes mount it at MOUNT_POINT with the default options
    shared  a directory that this process and all nodes see at the same path, through hostfs, for scripts and logs.
            Write each file only once: a node may cache what it has read.
    """

    def __init__(self, work, names=("node1", "node2"), export=None, lease_s=LEASE_S, memory="1G"):
        self.export = export or work / "export"
        self.shared = work / "shared"
        for directory in (self.export, self.shared):
            directory.mkdir(parents=True, exist_ok=True)
        self.network = network.Network()
        self.server = server.Server(self.network, self.export, work / "server", lease_s)
        hosts = {"server": self.server.address,
                 **{name: f"10.99.0.{number}" for number, name in enumerate(names, 11)}}
        self.nodes = []
        for number, name in enumerate(names):
            self.network.add_tap(f"tap{number}")
            self.nodes.append(node.Node(self.network, work / name, f"tap{number}", memory, {
                "name": name, "hosts": hosts, "shared": str(self.shared), "server": self.server.address,
                "export": server.EXPORT, "mount_point": MOUNT_POINT}))

    def start(self):
        """Starts the server and boots all nodes; returns when all of them accept commands."""
        self.server.start()
        for one in self.nodes:
            one.boot()
        for one in self.nodes:
            one.wait_until_booted()

    def close(self):
        """Kills the nodes and the server without a shutdown, as a power cut does."""
        for one in self.nodes:
            one.kill()
        self.server.kill()
        self.network.close()

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()
