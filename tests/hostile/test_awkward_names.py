# SPDX-License-Identifier: Apache-2.0
"""The daemon's answers and records stay valid if names of jobs and entries are not UTF-8, or contain quotes, newlines
or control characters."""

import json
import os
import re
import subprocess

import mounts
import pytest
from jobs import PYTHON, wait_until

USER = 20001
NAME = b'K\xff\xfe"\\\n\x1b[31m\x07\x7f\xc2\x85'
JOB = os.fsdecode(b'j\xff"\\\n\x1b[31m,{}')
FILES = ["version", "stats", "metrics", "status", "flights", "profiles"]
BATON = b"torch-extensions/py311_cu128/"


def strict(data):
    """Parses JSON as a strict reader does: UTF-8 without lone surrogates."""
    value = json.loads(data.decode("utf-8"), parse_constant=lambda name: pytest.fail(name))
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def ask(mount, **request):
    return [strict(line) for line in mount.answer(request)][-1]


def in_view(job, *parts):
    return b"/".join([os.fsencode(job.mount), *parts])


def put(job, entry):
    """Writes an entry, and completes it."""
    directory = in_view(job, b"triton", entry)
    job("os.makedirs", directory, exist_ok=True)
    job("write_file", directory + b"/" + NAME + b".cubin", b"x")
    job("write_file", directory + b"/tmp.pid_1", b"{}")
    job("os.rename", directory + b"/tmp.pid_1", directory + b"/__grp__" + NAME + b".json")


def test_flights_of_awkward_names(mount, job_of):
    builder, waiter = job_of(mount, JOB, USER), job_of(mount, JOB, USER)
    path = in_view(builder, b"triton", NAME, b"__grp__" + NAME + b".json")
    for job in (builder, waiter):
        job("os.makedirs", os.path.dirname(path), exist_ok=True)
    assert not builder("os.path.lexists", path)
    waiter.start("os.path.lexists", path)
    wait_until(lambda: mount.stats()["flight_waits"] == 1, what="a wait")
    [flight] = strict((mount.path / ".cacheshim/flights").read_bytes())
    relative = b"/".join([b"triton", NAME, b"__grp__" + NAME + b".json"])
    assert bytes.fromhex(flight["path_hex"]) == relative
    [one] = ask(mount, op="explain", job="", path_hex=relative.hex()).get("flights", [flight])
    assert bytes.fromhex(one["path_hex"]) == relative
    builder("write_file", path, b"{}")
    waiter.result()


def test_control_files_and_answers(mount, job_of):
    job = job_of(mount, JOB, USER)
    put(job, NAME)
    put(job, b"plain")
    job("write_file", in_view(job, b"triton", NAME, b"left"), b"x")
    [listed] = ask(mount, op="job-list")["jobs"]
    name = listed["job"]
    assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
    assert listed["cycle"] == "0"
    for file in FILES:
        data = (mount.path / ".cacheshim" / file).read_bytes()
        data.decode("utf-8")
        if data.startswith((b"{", b"[")):
            strict(data)
    strict((mount.path / ".cacheshim/jobs" / name).read_bytes())
    for request in ({"op": "job-list", "rows": True}, {"op": "job-show", "job": name},
                    {"op": "job-layer", "job": name}, {"op": "job-publish", "job": name, "dry_run": True},
                    {"op": "job-discard", "job": name, "dry_run": True}, {"op": "gc", "dry_run": True},
                    {"op": "verify"}, {"op": "waiting"},
                    {"op": "explain", "job": name, "path_hex": (b"triton/" + NAME + b"/left").hex()}):
        assert ask(mount, **request)["ok"], request
    for request in ({"op": "job-show", "job": JOB}, {"op": JOB}, {"op": "job-end", "job": name, "outcome": JOB},
                    {"op": "explain", "job": name, "path": "../" + JOB}):
        assert "error" in ask(mount, **{key: value.encode("utf-8", "replace").decode() for key, value in
                                        request.items()})
    mount.cli("job", "list", "--json")
    assert ask(mount, op="job-end", job=name, outcome="success")["ok"]


def test_records_of_awkward_names(mount, job_of):
    job = job_of(mount, JOB, USER, env={"CACHESHIM_CYCLE": JOB})
    put(job, NAME)
    job("write_file", in_view(job, b"triton", NAME, b"left"), b"x")
    records = [strict(line) for file in mount.base(".cacheshim/audit").iterdir()
               for line in file.read_bytes().splitlines()]
    [published] = [one for one in records if one["event"] == "publish"]
    assert bytes.fromhex(published["entry_hex"]) == b"triton/" + NAME
    assert {bytes.fromhex(one["path_hex"]) for one in published["files"]} == {
        b"/".join([b"triton", NAME, NAME + b".cubin"]), b"/".join([b"triton", NAME, b"__grp__" + NAME + b".json"])}
    [meta] = mount.base(".cacheshim/layers").glob("*/*/meta.json")
    assert strict(meta.read_bytes())["job"] == published["job"]
    for text in (meta.parent.name, meta.parent.parent.name, published["cycle"], published["node"]):
        assert re.fullmatch(r"[A-Za-z0-9._@-]+", text)


def test_a_baton_of_an_awkward_name_is_watched_by_the_next_daemon(mount, job_of, mount_store, store):
    builder = job_of(mount, "j", USER)
    directory = in_view(builder, BATON + NAME)
    builder("os.makedirs", directory)
    builder("os.close", builder("os.open", directory + b"/lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    mount.kill_daemon()
    mount.detach()
    again = mount_store(store, name=mount.path.name)
    reader = job_of(again, "j", USER)
    assert reader("os.path.lexists", directory + b"/lock")
    builder.kill()
    wait_until(lambda: not reader("os.path.lexists", directory + b"/lock"), what="the removal")


def test_records_of_batons_have_a_limit(mount, job_of):
    """While a job creates and removes batons, each with a new name, the file that records them does not exceed 1
    MiB."""
    job = job_of(mount, "j", USER)
    job("os.makedirs", in_view(job, BATON))
    for begin in range(0, 3000, 500):
        job("agent_hostile.make_and_remove_batons", in_view(job, BATON), begin, 500)
    [records] = mount.base(".cacheshim/layers").glob("*/*/batons.jsonl")
    assert records.stat().st_size <= 1 << 20
    last = in_view(job, BATON, b"last")
    job("os.makedirs", last)
    job("os.close", job("os.open", last + b"/lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    assert b"last" in records.read_bytes().splitlines()[-1]


def test_commands_with_awkward_arguments(mount, job_of):
    job = job_of(mount, JOB, USER)
    put(job, NAME)
    path = in_view(job, b"triton", NAME)
    for command in (["explain", path], ["job", "show", JOB], ["job", "end", JOB, "--success"],
                    ["run", "--job", JOB, "--", PYTHON, "-c", "pass"]):
        at = 1 if command[0] == "run" else len(command)
        words = [*command[:at], "--mount", mount.path, *command[at:]]
        done = subprocess.run([mounts.PROGRAM, *words], capture_output=True, timeout=60, check=False)
        assert done.returncode in (0, 1, 2), done.stderr
        assert b"terminate" not in done.stderr
