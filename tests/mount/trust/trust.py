# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of [publish] allow: the users, an entry, and what cacheshim publishes and reports."""

import json

TRUSTED, STRANGER, GROUP = 20001, 20002, 21000
KERNEL = {"k.cubin": b"cubin" * 100, "k.json": b"{}"}
NAME = "stub.so"


def is_published(mount, key="KEY"):
    return mount.base("triton", key).exists()


def explain(mount, path, job):
    return json.loads(mount.cli("explain", path, "--json", "--job", job).stdout)


def show(mount, job):
    return json.loads(mount.cli("job", "show", job, "--json").stdout)


def audited(mount):
    return [json.loads(line)["uid"] for log in mount.base(".cacheshim/audit").glob("*.jsonl")
            for line in log.read_text().splitlines()]
