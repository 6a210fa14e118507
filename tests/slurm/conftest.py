# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a cluster with a mount on its node. All tests share the cluster, because starting SLURM takes most of the
time."""

import pathlib
import shutil

import mounts
import pytest
from cluster import Cluster
from site_jobs import Site

SCRIPTS = mounts.REPOSITORY / "integrations/slurm"


def script_for(name, mount, program):
    """Returns the text of a script of integrations/slurm with this mount and program, as an administrator adapts it."""
    text = (SCRIPTS / name).read_text()
    for line, value in (("readonly mount=/ci-cache", f"readonly mount={mount}"),
                        ("readonly program=/usr/local/bin/cacheshim", f"readonly program={program}")):
        assert text.count(f"{line}\n") == 1
        text = text.replace(line, value)
    return text


@pytest.fixture(scope="session")
def site(all_scratch):
    """The cluster, with a mount, the prolog and the epilog, as an administrator sets them up."""
    top = all_scratch / "site"
    installed = pathlib.Path(mounts.PROGRAM).parents[1]
    shutil.copytree(installed / "bin", top / "bin")
    shutil.copytree(installed / "share/cacheshim", top / "share/cacheshim")
    shutil.copytree(installed / "libexec", top / "libexec")
    program, library = top / "bin/cacheshim", top / "libcacheshim.so"
    shutil.copy(mounts.LIBRARY, library)
    cluster = Cluster(top, *(script_for(name, top / "mnt", program) for name in ("prolog.sh", "epilog.sh")))
    try:
        yield Site(cluster, top, program, library)
    finally:
        cluster.close()
