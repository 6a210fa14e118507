# SPDX-License-Identifier: Apache-2.0
"""Malformed requests, large numbers of requests, and unusual file names of one user do not affect other users."""

import json
import os
import random
import subprocess

import pytest
from jobs import wait_until

USER, STRANGER = 20001, 20002
NAME = b"triton/\xff\xfe\n\x80"  # not UTF-8, and with a newline, which could break a log line
DEEP = 200_000


@pytest.fixture
def alive(mount):
    """The mount. Asserts after the test that the same daemon still serves it."""
    before = mount.daemon_pid()
    yield mount
    assert mount.daemon_pid() == before
    assert mount.path.joinpath(".cacheshim/version").read_text()


def ask(mount, text):
    """Sends a request to the daemon; returns the last line of the reply, or the errno of the write."""
    try:
        return json.loads(mount.answer(text)[-1])
    except OSError as error:
        return error.errno


def nested(depth, inner="1"):
    return "[" * depth + inner + "]" * depth


@pytest.mark.parametrize("text", [
    nested(DEEP), "[" * DEEP, '{"op":"job-list","x":' + nested(DEEP) + "}",
    '{"op":"explain","path":' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}",
    '{"op":"explain","path":"' + "x" * 500_000 + '"}', "{" * DEEP, '"' * DEEP,
    '{"op":"' + "\\u0000" * 10_000 + '"}', "1e999999999", '{"op":' + "9" * 100_000 + "}",
    b"\xff\xfe\x00", b"\0" * 100_000, "", "nul", "[]", '{"op":[]}', '{"op":{}}', '{"op":null}'],
    ids=range(18))
def test_malformed_requests_are_refused(alive, text):
    """The daemon refuses the request, with an errno or a message, and answers the next one."""
    if text:
        answer = ask(alive, text)
        assert isinstance(answer, int) or "error" in answer
    assert ask(alive, '{"op":"job-list"}')["ok"]


OPS = ["job-list", "job-show", "job-start", "job-end", "job-publish", "job-discard", "job-layer",
       "explain", "gc", "verify", "waiting", "close", "reopen", "no-such"]
VALUES = [None, True, -1, 2**63, 2**64 - 1, 1e300, "", ".", "..", "a/../b", "x" * 5000, "\x00",
          "\udcff", "uid-0", [], [[]], {}, {"a": {"b": [1]}}, "triton/KEY", ["job"], 0]


def test_requests_with_fields_of_any_type(alive):
    """Sends a thousand random requests, the same ones in each run."""
    source = random.Random(19)
    for _ in range(1000):
        op = source.choice(OPS)
        request = {"op": op}
        for field in ("job", "path", "path_hex", "outcome", "cycle", "rows", "run", "dry_run",
                      "repair", "shared_uids", "seconds", "in_use"):
            if source.random() < 0.5:
                request[field] = source.choice(VALUES)
        if op == "close":
            request["in_use"], request["seconds"] = False, 1
        text = json.dumps(request)
        if source.random() < 0.2:
            at = source.randrange(len(text))
            text = text[:at] + source.choice(['"', "{", "\\", "\n", "\x00"]) + text[at + 1:]
        answer = ask(alive, text)
        assert isinstance(answer, (int, dict)), (text, answer)
    ask(alive, '{"op":"reopen"}')


def test_many_requests_without_waiting_callers(alive, job_of):
    """After 3000 requests whose callers do not wait for a reply, the same daemon still answers."""
    stranger = job_of(alive, "s", STRANGER)
    stranger("agent_hostile.send_requests", str(alive.path / ".cacheshim/control"), 3000,
             json.dumps({"op": "explain", "path": "triton/x", "job": "s"}).encode())
    explain = '{"op":"explain","path":"triton/x","job":"s"}'
    wait_until(lambda: isinstance(answer := ask(alive, explain), dict) and "ok" in answer, what="an answer")


def put_names(job):
    path = os.fsencode(job.mount) + b"/" + NAME
    job("os.makedirs", path)
    job("write_file", path + b"/k.bin", b"bytes")


def test_job_plans_accept_names_that_are_not_utf8(alive, job_of):
    job = job_of(alive, "j", USER)
    put_names(job)
    for request in ({"op": "job-publish", "job": "j", "dry_run": True},
                    {"op": "job-discard", "job": "j", "dry_run": True}):
        answer = ask(alive, json.dumps(request))
        [entry] = answer["plan"]
        assert bytes.fromhex(entry["entry_hex"]) == NAME
        assert entry["entry"].startswith("triton/\ufffd")
    for command in (["job", "publish", "j", "--dry-run"], ["job", "discard", "j", "--dry-run"],
                    ["job", "publish", "j"]):
        alive.cli(*command)
    assert alive.end_job("j").returncode == 0


def test_explain_accepts_names_that_are_not_utf8(alive, job_of):
    put_names(job_of(alive, "j", USER))
    path = NAME + b"/k.bin"
    answer = ask(alive, json.dumps({"op": "explain", "job": "j", "path_hex": path.hex()}))
    assert answer["from"] == "layer" and bytes.fromhex(answer["path_hex"]) == path
    told = alive.cli("explain", os.fsdecode(os.fsencode(alive.path) + b"/" + path), "--job", "j",
                     "--json")
    assert json.loads(told.stdout)["from"] == "layer"


@pytest.fixture
def limited(mount_store, store, scratch):
    """A mount whose store exceeds max_size, so that gc evicts an entry whose name is not UTF-8."""
    directory = os.fsencode(store) + b"/" + NAME
    os.makedirs(directory)
    with open(directory + b"/__grp__k.json", "wb") as file:
        file.write(b"{}")
    os.utime(directory + b"/__grp__k.json", (1, 1))
    config = scratch / "gc.toml"
    config.write_text('[gc]\nmax_size = "1"\nmin_age = "1s"\n')
    return mount_store(store, "--config", config)


def test_gc_accepts_names_that_are_not_utf8(limited):
    before = limited.daemon_pid()
    answer = ask(limited, '{"op":"gc","dry_run":true}')
    assert [bytes.fromhex(one["entry_hex"]) for one in answer["evicted"]] == [NAME]
    ask(limited, '{"op":"gc"}')
    assert NAME.removeprefix(b"triton/") not in os.listdir(os.fsencode(limited.path / "triton"))
    limited.cli("gc")
    limited.cli("verify", check=False)
    assert limited.daemon_pid() == before


@pytest.mark.parametrize("size", [1 << 40, 64 << 20], ids=["1T", "64M"])
def test_a_huge_sparse_file_that_completes_an_entry(alive, job_of, size):
    job = job_of(alive, "j", USER)
    job.put("KEY", "k.cubin", b"x")
    group = job.path("triton/KEY/__grp__k.json")
    job.write("triton/KEY/tmp.pid_1", b"")
    job("os.truncate", job.path("triton/KEY/tmp.pid_1"), size)
    job("os.rename", job.path("triton/KEY/tmp.pid_1"), group)
    assert not alive.base("triton/KEY").exists()
    answer = ask(alive, json.dumps({"op": "job-publish", "job": "j", "dry_run": True}))
    assert "too large" in answer["plan"][0]["why"]
    assert job("os.stat", group).st_size == size


@pytest.mark.parametrize("text", [
    nested(DEEP), '{"child_paths":' * 50_000 + "1" + "}" * 50_000, "[" * DEEP,
    nested(65, '"/elsewhere/x"')], ids=["array", "object", "open", "hidden-path"])
def test_a_nested_file_that_completes_an_entry(alive, job_of, text):
    job = job_of(alive, "j", USER)
    job.put("KEY", "k.cubin", b"x")
    job.put("KEY", "__grp__k.json", text.encode())
    assert not alive.base("triton/KEY").exists()
    other = job_of(alive, "k", USER)
    other.put_group("OTHER", {"k.cubin": b"x"})
    assert alive.base("triton/OTHER").exists()


def test_a_nested_file_of_the_base(alive, job_of):
    directory = alive.base("triton/KEY")
    directory.mkdir(parents=True)
    (directory / "__grp__k.json").write_text(nested(DEEP))
    os.mkfifo(directory / "__grp__fifo.json")
    job = job_of(alive, "j", USER)
    job.put_group("KEY", {"k.cubin": b"x"})
    assert job.read("triton/KEY/k.cubin") == b"x"


@pytest.mark.parametrize("line", [
    nested(DEEP), '{"event":"publish","files":' + nested(100_000) + "}",
    '{"event":"publish","entry_hex":"zz"}', '{"event":1}', '{"event":"publish","files":[1,[],{}]}',
    '{"event":"publish","files":{"path":1}}', "\x00\x01"],
    ids=range(7))
def test_malformed_lines_of_records(alive, job_of, line):
    job_of(alive, "j", USER).put_group("KEY", {"k.cubin": b"x"})
    alive.base(".cacheshim/audit/more.jsonl").write_text(line + "\n")
    assert ask(alive, '{"op":"explain","path":"triton/KEY/k.cubin","job":"j"}')["published"]
    assert ask(alive, '{"op":"verify"}')["damaged"] == []


@pytest.fixture
def deep_job(alive, job_of):
    """A job with a directory tree so deep that its path exceeds PATH_MAX; the job creates it with relative names."""
    job = job_of(alive, "j", USER)
    job("os.makedirs", job.path("mine"), exist_ok=True)
    assert job("agent_hostile.make_deep", job.path("mine"), 3000) > 2500
    yield job
    subprocess.run(["rm", "-rf", alive.base(".cacheshim/layers"), alive.base("mine")], check=True)


def test_a_deep_tree_is_planned_and_discarded(alive, deep_job):
    for request in ("job-publish", "job-discard"):
        assert ask(alive, json.dumps({"op": request, "job": "j", "dry_run": True}))["ok"]
    assert ask(alive, '{"op":"job-discard","job":"j"}')["ok"]
    assert not alive.base(".cacheshim/layers/j").exists()


def test_a_deep_tree_is_taken_over_and_discarded_at_the_jobs_end(mount, job_of, mount_store, store):
    job = job_of(mount, "j", USER)
    job("os.makedirs", job.path("mine"), exist_ok=True)
    job("agent_hostile.make_deep", job.path("mine"), 3000)
    mount.kill_daemon()
    mount.detach()
    try:
        again = mount_store(store)
        assert ask(again, '{"op":"job-show","job":"j"}')["ok"]
        assert ask(again, '{"op":"job-end","job":"j","outcome":"success"}')["ok"]
        assert not again.base(".cacheshim/layers/j").exists()
    finally:  # shutil.rmtree cannot remove a tree of this depth
        subprocess.run(["rm", "-rf", store], check=True)
