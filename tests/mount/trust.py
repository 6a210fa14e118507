# SPDX-License-Identifier: Apache-2.0
"""What the tests of [publish] allow share: fixtures, who is who, and what can be seen."""

import json
import uuid

import pytest

TRUSTED, STRANGER, GROUP = 20001, 20002, 21000
KERNEL = {"k.cubin": b"cubin" * 100, "k.json": b"{}"}
NAME = "stub.so"


@pytest.fixture
def mount_allowing(mount_store, store, scratch):
    """Mounts the store with this table as [publish] allow; None: without."""
    def mount(allow, more="", name=None):
        config = scratch / f"{uuid.uuid4()}.toml"
        config.write_text("" if allow is None else f"[publish]\nallow = {allow}\n{more}")
        return mount_store(store, "--config", config, name=name)
    return mount


@pytest.fixture
def mount(mount_allowing):
    return mount_allowing(f"{{ users = [{TRUSTED}] }}")


def is_published(mount, key="KEY"):
    return mount.base("triton", key).exists()


def explain(mount, path, job):
    return json.loads(mount.cli("explain", path, "--json", "--job", job).stdout)


def show(mount, job):
    return json.loads(mount.cli("job", "show", job, "--json").stdout)


def audited(mount):
    return [json.loads(line)["uid"] for log in mount.base(".cacheshim/audit").glob("*.jsonl")
            for line in log.read_text().splitlines()]


@pytest.fixture
def shared(mount, job_of):
    """A job of several users: TRUSTED, STRANGER."""
    mount.cli("job", "start", "both", "--shared-uids")
    return job_of(mount, "both", TRUSTED), job_of(mount, "both", STRANGER)
