# SPDX-License-Identifier: Apache-2.0
import shutil
import signal
import subprocess
import time

import mounts
import pytest
from sites import Machine, Site

TIER_URLS = ["directory", "redis", "stacked"]


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


@pytest.fixture(params=TIER_URLS)
def url(request):
    if request.param == "stacked":
        return [request.getfixturevalue("redis_url"), request.getfixturevalue("directory_url")]
    return request.getfixturevalue(f"{request.param}_url")


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
