# SPDX-License-Identifier: Apache-2.0
"""The machines of a site that share a remote tier."""

import json
import os
import pathlib
import shutil

import agent_caches
import mounts
from jobs import wait_until

NAME = "stub.so"  # of class flight in the profile triton; completes its entry if it is the entry's only file
KEY = "triton/KEY"
ACCESS_KEY, SECRET_KEY = "site", "secret"  # of the S3 server


class Site:
    """A machine's store and configuration, for one remote tier."""

    def __init__(self, program, scratch, name, url, signing_key=None, **settings):
        self.program, self.store = program, scratch / name
        self.store.mkdir()
        self.config = scratch / f"{name}.toml"
        lines = {"url": url, "timeout_ms": 2000, **({"sign_with": str(signing_key)} if signing_key else {}), **settings}
        if "s3://" in str(url):
            lines["secrets"] = str(self._write_secrets(scratch / f"{name}.secrets"))
        self.write_config(lines)

    @staticmethod
    def _write_secrets(path):
        path.touch(0o600)
        path.write_text(f'access_key = "{ACCESS_KEY}"\nsecret_key = "{SECRET_KEY}"\n')
        return path

    def write_config(self, lines):
        self.config.write_text("[remote]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
        self.lines = lines

    def remote(self, command, *words, check=True):
        """Runs `cacheshim remote COMMAND`; returns its JSON, or the subprocess.CompletedProcess if `check` is false."""
        store = ["--store", self.store] if command in ("get", "push") else []
        result = mounts.run(self.program, "remote", command, "--config", self.config, *store, "--json", *words)
        if not check:
            return result
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


class Machine:
    """A mounted store with a remote tier, and a job on it."""

    def __init__(self, site, mount_store, job_of, name, **options):
        self.site, self.name = site, name
        self.mount = mount_store(site.store, "--config", site.config, name=name)
        self.job = job_of(self.mount, f"job-{name}", 20001, **options)

    def look(self, key=KEY):
        """Returns whether the entry exists; if not, the job is now its builder."""
        return self.job("create_and_look_up", self.job.path(key), NAME)

    def start_look(self, key=KEY):
        self.job.start("create_and_look_up", self.job.path(key), NAME)

    def build(self, key=KEY, content=b"built"):
        self.job("triton_put", self.job.path(key), NAME, content)

    def count(self, name):
        return self.mount.stats()[name]

    def await_count(self, name, least=1, seconds=20):
        wait_until(lambda: self.count(name) >= least, seconds, f"{least} {name} on {self.name}")

    def tier(self):
        return self.mount.status()["remote"]

    def log(self):
        return (self.mount.run_directory() / "log").read_text()

    def explain(self, *words):
        path = self.mount.path / KEY / NAME
        return self.mount.cli("explain", "--job", self.job.job, *words, path).stdout

    def await_use(self, is_used=True, seconds=20):
        wait_until(lambda: self.tier()["used"] == is_used, seconds, f"used: {is_used} on {self.name}")


def make_kernel(store, key, size=1000):
    """Adds to the store an entry as Triton writes it, with the paths of the mount /ci-cache."""
    entry = store / "triton" / key
    agent_caches.triton_put(str(entry), "kernel.cubin", os.urandom(size))
    agent_caches.triton_put(str(entry), "kernel.json", b"{}")
    children = {name: f"/ci-cache/triton/{key}/{name}" for name in ("kernel.cubin", "kernel.json")}
    agent_caches.triton_put(str(entry), "__grp__kernel.json", json.dumps({"child_paths": children}).encode())
    return f"triton/{key}"


def files_of(store):
    return {str(path.relative_to(store)): path.read_bytes() for path in (store / "triton").rglob("*") if path.is_file()}


HELPER = """#!/usr/bin/python3
import array, fcntl, json, os, socket, sys

peer = socket.socket(fileno=3)
ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
while message := peer.recv(65536):
    request = json.loads(message)
    if request["op"] == "open":
        peer.send(b'{"leases": true}')
        continue
"""


def prefix_with_helper(program, scratch, answer):
    """Installs a copy of the program with another helper, and returns its prefix: the program finds the helper below its
    own prefix. `answer`: the indented lines of Python that handle a request."""
    installed = pathlib.Path(program).parents[1]
    prefix = scratch / "prefix"
    shutil.copytree(installed / "share", prefix / "share")
    (prefix / "bin").mkdir()
    shutil.copy2(program, prefix / "bin")
    helper = prefix / "libexec/cacheshim/cacheshim-remote"
    helper.parent.mkdir(parents=True)
    helper.write_text(HELPER + answer)
    helper.chmod(0o755)
    return prefix
