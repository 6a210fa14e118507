# SPDX-License-Identifier: Apache-2.0
import shutil

import lab
import pytest

PROGRAMS = {"linux.uml": "user-mode-linux", "ganesha.nfsd": "nfs-ganesha", "mount.nfs": "nfs-common", "ip": "iproute2"}


@pytest.fixture(scope="session")
def nodes_lab(all_scratch):
    """The server and two nodes, for all tests. A test that kills a node boots it again."""
    for program, package in PROGRAMS.items():
        if not shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin"):
            pytest.skip(f"needs {program} (Debian package {package})")
    with lab.Lab(all_scratch / "nodes") as one:
        yield one


@pytest.fixture
def two_nodes(nodes_lab):
    return nodes_lab.nodes


@pytest.fixture
def export(nodes_lab, scratch):
    """A new directory of the export, which every user can write, as this process and as the nodes name it."""
    here = nodes_lab.export / scratch.name
    here.mkdir()
    here.chmod(0o777)
    return here, f"{lab.MOUNT_POINT}/{scratch.name}"
