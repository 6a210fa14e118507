# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess

import lab
import mounts
import pytest

PROGRAMS = {"linux.uml": "user-mode-linux", "ganesha.nfsd": "nfs-ganesha", "mount.nfs": "nfs-common", "ip": "iproute2"}

STORM_RUNS = int(os.environ.get("STORM_RUNS", "3"))


@pytest.fixture(params=range(STORM_RUNS))
def repeated():
    """Runs a test several times, because a storm finds a rare race only in some runs."""


@pytest.fixture(scope="session")
def nodes_lab(all_scratch):
    """The server and two nodes, which all tests share. A test that kills a node must boot it again."""
    for program, package in PROGRAMS.items():
        if not shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin"):
            pytest.skip(f"needs {program} (Debian package {package})")
    with lab.Lab(all_scratch / "nodes") as one:
        yield one


@pytest.fixture
def two_nodes(nodes_lab):
    """The nodes. If a node or the server does not answer after the test, prints its output and starts it again for the
    next test."""
    yield nodes_lab.nodes
    nodes_lab.server.start_again_after_a_crash()
    for node in nodes_lab.nodes:
        try:
            node.run("true", timeout=20, check=True)
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            print(f"{node.name} does not answer ({error}); its console:", node.console()[-8000:], sep="\n")
            node.kill()
            node.boot()
            node.wait_until_booted()


@pytest.fixture
def export(nodes_lab, scratch):
    """A new directory in the export to which every user can write: its path for this process, and its path on the
    nodes."""
    here = nodes_lab.export / scratch.name
    here.mkdir()
    here.chmod(0o777)
    return here, f"{lab.MOUNT_POINT}/{scratch.name}"


@pytest.fixture
def store(export):
    """The path of a new store on the export, as the nodes see it."""
    here, there = export
    (here / "store").mkdir(mode=0o755)
    return f"{there}/store"


@pytest.fixture
def mount_on(two_nodes):
    """mount_on(node, store, *options) mounts a store on a node, at lab.POINT."""
    mounted = []

    def mount(node, store, *options):
        node.run(f"mkdir -p {lab.POINT}", check=True)
        node.run([mounts.PROGRAM, "mount", "--store", store, *options, lab.POINT], check=True)
        mounted.append(node)

    yield mount
    for node in mounted:
        if node.is_running():
            node.run(f"{mounts.PROGRAM} unmount {lab.POINT} || umount -l {lab.POINT}")
