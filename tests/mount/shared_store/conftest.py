# SPDX-License-Identifier: Apache-2.0
import subprocess

import pytest


@pytest.fixture
def var_lib(scratch):
    """An empty /var/lib; only in this run's mount namespace."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/var/lib"], check=True)
    yield
    subprocess.run(["umount", "-l", "/var/lib"], check=True)


@pytest.fixture
def shared(scratch, store, var_lib):
    """The store on bindfs, a FUSE file system, so the daemon must assume that other machines use it too. bindfs shows
    the directory `store`, which stands for the server's directory: changes there are like changes by another
    machine."""
    point = scratch / "shared"
    point.mkdir()
    subprocess.run(["bindfs", "--multithreaded", store, point], check=True)
    yield point
    subprocess.run(["umount", "-l", point], check=True)
