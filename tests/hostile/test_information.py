# SPDX-License-Identifier: Apache-2.0
"""Neither requests nor the daemon's log tell a user anything about the private files of other users."""

import json
import os
import re
import subprocess

import mounts
import pytest
from jobs import as_user, wait_until

OWNER, STRANGER = 20001, 20002
SECRET = "triton/SECRET/key.bin"
DIGEST = re.compile(r"[0-9a-f]{32}")


@pytest.fixture
def owner(mount, job_of):
    """A process of OWNER's job "mine", which has written the file SECRET."""
    job = job_of(mount, "mine", OWNER)
    job("os.makedirs", job.path("triton/SECRET"))
    job.write(SECRET, b"of the owner" * 100)
    return job


def ask(mount, uid, **request):
    """Sends a request as `uid`; returns the last line of the reply."""
    script = ("import os, sys; fd = os.open(sys.argv[1], os.O_RDWR); os.write(fd, sys.argv[2].encode())\n"
              "answer = b''\n"
              "while chunk := os.read(fd, 1 << 16): answer += chunk\n"
              "sys.stdout.write(answer.decode().splitlines()[-1])")
    asked = as_user(uid, ["/usr/bin/python3", "-c", script, mount.path / ".cacheshim/control",
                          json.dumps(request)])
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


REQUESTS = [{"op": "job-show", "job": "mine"}, {"op": "job-layer", "job": "mine"},
            {"op": "explain", "job": "mine", "path": SECRET}]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request["op"])
@pytest.mark.usefixtures("owner")
def test_requests_on_a_job_are_answered_for_its_user_and_root_only(mount, request_):
    refused = ask(mount, STRANGER, **request_)
    assert refused["exit"] == 1 and "only its own user and root may see it" in refused["error"]
    assert ask(mount, OWNER, **request_)["ok"]
    assert ask(mount, 0, **request_)["ok"]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request["op"])
def test_requests_on_an_ended_job(mount, owner, request_):
    owner.close()
    mount.end_job("mine", "failure")
    refused = ask(mount, STRANGER, **request_)
    assert "ok" not in refused or refused["from"] == "nowhere"


@pytest.mark.usefixtures("owner")
def test_the_list_of_jobs_names_no_layer_of_others(mount):
    def listed(uid):
        [job] = [job for job in ask(mount, uid, op="job-list")["jobs"] if job["job"] == "mine"]
        return job
    assert "/layers/mine/" in listed(OWNER)["layer"] and "/layers/mine/" in listed(0)["layer"]
    assert listed(STRANGER)["layer"] is None and listed(STRANGER)["uid"] == OWNER


def test_strangers_do_not_learn_why_a_job_may_not_publish(mount_allowing, job_of):
    mount = mount_allowing("{}")
    job_of(mount, "mine", OWNER).write("triton/x", b"x")
    assert ask(mount, OWNER, op="job-show", job="mine")["job"]["refused"]
    [job] = [job for job in ask(mount, STRANGER, op="job-list")["jobs"] if job["job"] == "mine"]
    assert job["refused"] == ""


@pytest.mark.usefixtures("owner")
def test_the_file_of_a_job(mount):
    path = mount.path / ".cacheshim/jobs/mine"
    assert "Permission denied" in as_user(STRANGER, ["cat", path]).stderr
    for uid in (OWNER, 0):
        assert json.loads(as_user(uid, ["cat", path]).stdout)["job"] == "mine"


def test_builds_of_others_are_not_listed(mount, job_of):
    builder, waiter = (job_of(mount, job, OWNER) for job in ("one", "two"))
    directory = "triton/BUILD"
    for job in (builder, waiter):
        job("os.makedirs", job.path(directory))
    name = f"{directory}/__grp__k.json"
    assert not builder("os.path.exists", builder.path(name))
    waiter.start("os.path.exists", waiter.path(name))
    wait_until(lambda: mount.stats()["flight_waits"] > 0, what="a wait")
    shown = {uid: as_user(uid, ["cat", mount.path / ".cacheshim/flights"]).stdout
             for uid in (STRANGER, OWNER, 0)}
    builder.kill()
    waiter.result()
    assert "BUILD" in shown[OWNER] and "BUILD" in shown[0]
    assert json.loads(shown[STRANGER]) == []


@pytest.fixture
def closed(store):
    """A store with a file that only root can read, and with a directory that only root can enter."""
    (store / "triton/KEY").mkdir(parents=True)
    file = store / "triton/KEY/closed.bin"
    file.write_bytes(b"of root" * 10)
    file.chmod(0o600)
    (store / "triton/KEY/open.bin").write_bytes(b"for all")
    (store / "triton/CLOSED").mkdir(mode=0o700)
    (store / "triton/CLOSED/file").write_bytes(b"of root")
    return store


@pytest.mark.parametrize("job", ["theirs", "unknown"])
@pytest.mark.usefixtures("closed")
def test_explain_gives_no_digest_of_a_file_that_the_caller_cannot_read(mount_store, store, job_of, job):
    mount = mount_store(store)
    job_of(mount, "theirs", STRANGER).listdir("triton")
    answer = ask(mount, STRANGER, op="explain", job=job, path="triton/KEY/closed.bin")
    assert answer["from"] == "base" and not DIGEST.search(json.dumps(answer))
    assert DIGEST.fullmatch(ask(mount, STRANGER, op="explain", job=job, path="triton/KEY/open.bin")["xxh3"])
    hidden = ask(mount, STRANGER, op="explain", job=job, path="triton/CLOSED/file")
    assert "may not look up" in hidden["error"]
    assert (ask(mount, STRANGER, op="explain", job=job, path="triton/CLOSED/none")["error"]
            == hidden["error"].replace("file", "none"))
    for path in ("triton/KEY/closed.bin", "triton/CLOSED/file"):
        assert DIGEST.fullmatch(ask(mount, 0, op="explain", job="unknown", path=path)["xxh3"])


def test_explain_gives_no_recorded_digest_of_a_file_that_the_caller_cannot_read(mount, job_of):
    owner = job_of(mount, "mine", OWNER)
    owner.put_group("KEY", {"k.cubin": b"cubin"})
    request = {"op": "explain", "job": "none", "path": "triton/KEY/k.cubin"}
    assert ask(mount, STRANGER, **request)["published"]["xxh3"]
    mount.base("triton/KEY/k.cubin").chmod(0o600)
    assert "xxh3" not in ask(mount, STRANGER, **request)["published"]
    assert ask(mount, OWNER, **request)["published"]["xxh3"]


@pytest.mark.usefixtures("owner")
def test_the_command_line_refuses_as_the_daemon_does(mount, program):
    for argv in (["job", "show", "mine"], ["explain", SECRET, "--job", "mine"]):
        refused = as_user(STRANGER, [program, *argv, "--mount", mount.path])
        assert refused.returncode == 1 and refused.stdout == ""
        assert refused.stderr.endswith("only its own user and root may see it\n"), refused.stderr
        assert as_user(OWNER, [program, *argv, "--mount", mount.path]).returncode == 0


def test_only_root_can_read_the_log(mount, owner):
    log = mount.run_directory() / "log"
    assert log.read_text()
    assert "Permission denied" in as_user(STRANGER, ["cat", log]).stderr
    owner.close()
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_log_of_an_earlier_daemon_is_closed(mount, mount_store, store):
    log = mount.run_directory() / "log"
    old = log.with_name("log.1")
    old.write_text("older\n")
    for file in (log, old):
        file.chmod(0o644)
    mount.kill_daemon()
    mount.detach()
    again = mount_store(store, name="mnt0")
    assert again.run_directory() == log.parent
    assert {file.stat().st_mode & 0o777 for file in (log, old)} == {0o600}


# ---- names that forge lines and control terminals

FORGED = b"[2030-01-01 00:00:00.000] [cacheshim] [info] forged"
EVIL = b"a\x1b]0;owned\x07\x1b[2J\r\n" + FORGED + b"\xc2\x9b31m\x7f\x9b\xe2\x80\xae"
LINE = re.compile(rb"\[\d{4}-\d\d-\d\d [0-9:.]+\] \[cacheshim\] \[\w+\] [^\n]*\n")
CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|(?<![\xc2-\xf4\x80-\xbf])[\x80-\x9f]|\xe2\x80\xae")


def assert_printable(text):
    assert not CONTROL.search(text), text
    assert not any(line.startswith(FORGED) for line in text.splitlines()), text


def output_of(*words):
    """Runs a command; returns its stdout and stderr, as bytes."""
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=60, check=False).stdout


def run_raw(mount, *argv):
    return output_of(mounts.PROGRAM, *argv, "--mount", mount.path)


@pytest.fixture
def published(mount_store, store, scratch, job_of):
    """A mount whose limits evict everything, with an entry that is named EVIL and whose only file is damaged."""
    config = scratch / "gc.toml"
    config.write_text('[gc]\nmax_size = "1"\nmin_age = "1s"\ninterval = "1h"\n')
    mount = mount_store(store, "--config", config)
    job = job_of(mount, "evil", STRANGER)
    directory = os.fsencode(mount.path / "triton") + b"/" + EVIL
    job("os.makedirs", directory)
    job("write_file", directory + b"/__grp__k.json", b"{}")
    file = os.fsencode(store / "triton") + b"/" + EVIL + b"/__grp__k.json"
    wait_until(lambda: os.path.exists(file), what="the entry in the base")
    with open(file, "r+b") as damaged:
        damaged.write(b"[]")
    os.utime(file, (1, 1))
    return mount


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("command", [["verify"], ["gc", "--dry-run"], ["status"], ["doctor"], ["job", "list"]],
                         ids=lambda command: command[0])
def test_no_command_prints_control_characters_of_a_name(published, command, options):
    told = run_raw(published, *command, *options)
    assert told
    assert_printable(told)
    if command[0] in ("verify", "gc"):
        assert b"forged" in told


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_explain_and_plans_print_no_control_characters(mount, job_of, options):
    job = job_of(mount, "evil", STRANGER)
    directory = os.fsencode(mount.path / "triton") + b"/" + EVIL
    job("os.makedirs", directory)
    job("write_file", directory + b"/k.bin", b"x")
    explain = ["explain", b"triton/" + EVIL + b"/k.bin", "--job", "evil"]
    for command in (explain, ["job", "publish", "evil", "--dry-run"], ["job", "discard", "evil", "--dry-run"]):
        told = run_raw(mount, *command, *options)
        assert b"forged" in told
        assert_printable(told)


def test_json_output_has_the_original_names(published):
    [damaged] = json.loads(run_raw(published, "verify", "--json"))["damaged"]
    assert bytes.fromhex(damaged["entry_hex"]) == b"triton/" + EVIL
    assert damaged["entry"] == "triton/" + EVIL.decode(errors="replace")


def test_control_files_print_no_control_characters(mount, job_of):
    builder = job_of(mount, "evil", STRANGER)
    directory = os.fsencode(mount.path / "triton") + b"/" + EVIL
    builder("os.makedirs", directory)
    assert not builder("os.path.exists", directory + b"/__grp__k.json")
    for name in ("flights", "status"):
        assert_printable((mount.path / ".cacheshim" / name).read_bytes())


def test_names_forge_no_lines_of_the_log(published):
    run_raw(published, "verify", "--repair")
    log = (published.run_directory() / "log").read_bytes()
    assert b"forged" in log
    assert_printable(log)
    assert b"".join(LINE.findall(log)) == log


@pytest.mark.parametrize("command", [["status"], ["stats"], ["job", "list"], ["profile", "list"], ["doctor"]], ids=str)
def test_texts_of_a_directory_that_simulates_a_mount(scratch, command):
    """The files contain what a malicious user's daemon could answer."""
    control = scratch / "fake/.cacheshim"
    control.mkdir(parents=True)
    evil = EVIL.decode(errors="replace")
    (control / "version").write_text("1\n")
    (control / "status").write_text(json.dumps({"mount": evil, "store": evil, "publish": evil, "profiles": [evil],
                                                "version": evil}, ensure_ascii=False))
    (control / "stats").write_text(json.dumps({"lookups": evil}, ensure_ascii=False))
    (control / "profiles").write_text("[]")
    (control / "control").write_text(" " * 200 + json.dumps({"error": evil}, ensure_ascii=False) + "\n")
    for options in ([], ["--json"]) if command[0] in ("status", "stats") else ([],):
        assert_printable(output_of(mounts.PROGRAM, *command, *options, "--mount", scratch / "fake"))


def test_a_profile_that_a_stranger_wrote(scratch, program):
    file = os.fsencode(scratch) + b"/x\x1b[2J\n" + b"forged.toml"
    for text in ('name = "x\\u001b[2J"\n', "name = 1\n\x1b[2J", "[[entry]]\npath = \"\\u001b\"\n"):
        with open(file, "w", encoding="utf-8") as profile:
            profile.write(text)
        told = output_of(program, "profile", "check", file)
        assert told
        assert_printable(told)
        assert not any(line.startswith(b"forged") for line in told.splitlines())
