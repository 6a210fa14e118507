# SPDX-License-Identifier: Apache-2.0
"""`job start --prefetch NAME`: the entries that the last job of this name used are fetched as one pack."""

import json
import os
import pathlib
import subprocess
import time

import mounts
import pytest
from jobs import PYTHON, as_user, wait_until
from sites import NAME, files_of, prefix_with_helper

UID = 20001
KEYS = [f"triton/K{number}" for number in range(5)]


class Prefetching:
    """A machine on which jobs start with --prefetch."""

    def __init__(self, machine, job_of, shimmed_job_of):
        self.machine, self.job_of, self.shimmed_job_of = machine, job_of, shimmed_job_of
        self.mount, self.store = machine.mount, machine.site.store

    def start(self, job="4711", name="train", uid=UID, more=()):
        """Starts a job; returns what the command prints after its first line."""
        printed = self.mount.cli("job", "start", job, "--uid", uid, "--prefetch", name, *more).stdout
        first, _, others = printed.partition("\n")
        assert first == f"job {job} started"
        return others

    def read(self, keys, job="4711", is_preloaded=False, uid=UID):
        start = self.shimmed_job_of if is_preloaded else self.job_of
        process = start(self.mount, job, uid)
        for key in keys:
            process("read_file", process.path(f"{key}/{NAME}"))
        return process

    def end(self, job="4711", outcome="--success"):
        self.mount.cli("job", "end", job, outcome)

    def run(self, keys, name="train", outcome="--success", job="4711", **options):
        """Runs a job that reads these entries."""
        self.start(job, name)
        self.read(keys, job, **options)
        self.end(job, outcome)

    def count(self, name):
        return self.mount.stats()[name]

    def packs_sent(self):
        return self.machine.log().count("was sent to the remote tier")

    def await_packs(self, number):
        wait_until(lambda: self.packs_sent() >= number, 20, f"{number} packs")

    def await_idle(self):
        """Waits until nothing is queued for the engine."""
        wait_until(lambda: self.machine.tier()["unsent"] == 0, 20, "an empty queue")

    def entries(self):
        return {path.rpartition("/")[0] for path in files_of(self.store)}


def make_entry(store, key, content=None):
    """Adds an entry to a store. Without `content`, its content depends only on its name."""
    (store / key).mkdir(parents=True)
    (store / key / NAME).write_bytes(content or key.encode() * 1000)


@pytest.fixture
def prefetching(machine, job_of, shimmed_job_of):
    """prefetching(name, url) mounts a new store."""
    return lambda name, url, **options: Prefetching(machine(name, url, **options), job_of, shimmed_job_of)


def make_pack(prefetching, url, keys=KEYS[:3], **options):
    """Runs a job named "train" that uses the entries `keys`, on a new machine whose base has all KEYS. Returns the
    machine once the pack is in the tier."""
    one = prefetching("one", url)
    for key in KEYS:
        make_entry(one.store, key)
    one.run(keys, **options)
    one.await_packs(1)
    return one


@pytest.mark.parametrize("is_preloaded", [False, True], ids=["on the mount", "preloaded"])
def test_a_job_begins_with_the_entries_that_the_last_one_of_its_name_used(prefetching, url, is_preloaded):
    one = make_pack(prefetching, url, is_preloaded=is_preloaded)
    two = prefetching("two", url)
    assert two.start() == "job 4711: fetched 3 entries that the last job 'train' used; 0 more were there already\n"
    assert two.entries() == set(KEYS[:3])
    in_one, in_two = files_of(one.store), files_of(two.store)
    assert all(in_one[path] == content for path, content in in_two.items())
    two.read(KEYS[:3])
    assert (two.count("remote_prefetched"), two.count("remote_hits"), two.count("flight_leases")) == (3, 0, 0)
    assert two.count("remote_bytes_in") == one.count("remote_bytes_out") > 0


def test_entries_that_the_job_builds_are_in_its_pack(prefetching, directory_url):
    one = prefetching("one", directory_url)
    one.start()
    builder = one.job_of(one.mount, "4711", UID)
    assert not builder("create_and_look_up", builder.path("triton/NEW"), NAME)
    builder("triton_put", builder.path("triton/NEW"), NAME, b"built")
    one.end()
    one.await_packs(1)
    two = prefetching("two", directory_url)
    assert "fetched 1 entry " in two.start()
    assert files_of(two.store) == {"triton/NEW/stub.so": b"built"}


def test_entries_that_are_there_are_kept(prefetching, directory_url):
    make_pack(prefetching, directory_url)
    two = prefetching("two", directory_url)
    make_entry(two.store, "triton/K0")
    before = files_of(two.store)
    assert "fetched 2 entries that the last job 'train' used; 1 more were there already" in two.start()
    after = files_of(two.store)
    assert {path: after[path] for path in before} == before and two.entries() == set(KEYS[:3])


def test_jobs_of_other_names_and_users_have_other_packs(prefetching, directory_url):
    make_pack(prefetching, directory_url)
    two = prefetching("two", directory_url)
    assert "there is no pack of an earlier job 'serve'" in two.start("4712", "serve")
    assert "there is no pack of an earlier job " in two.start("4713", "train", uid=UID + 1)
    assert two.entries() == set()
    assert "fetched 3 entries " in two.start("4714", "train")


def test_a_pack_is_sent_only_if_it_changes(prefetching, directory_url):
    one = make_pack(prefetching, directory_url)
    sent = one.count("remote_bytes_out")
    one.run(KEYS[:3])  # the same
    one.run(KEYS[:2])  # fewer
    one.await_idle()
    assert (one.packs_sent(), one.count("remote_bytes_out")) == (1, sent)
    one.run(KEYS[2:4])  # one more; the pack keeps what this job did not use
    one.await_packs(2)
    two = prefetching("two", directory_url)
    assert "fetched 4 entries " in two.start()
    assert two.entries() == set(KEYS[:4])


def test_a_pack_loses_what_is_no_longer_used(prefetching, directory_url):
    one = make_pack(prefetching, directory_url)
    one.run(KEYS[4:], outcome="--failure")  # a failed job may have ended before it used its other entries
    one.await_packs(2)
    one.run(KEYS[4:])
    one.await_packs(3)
    two = prefetching("two", directory_url)
    assert "fetched 1 entry " in two.start()
    assert two.entries() == set(KEYS[4:])


def test_packs_are_listed_and_removed(prefetching, directory_url):
    one = make_pack(prefetching, directory_url)
    site = one.machine.site
    assert site.remote("ls", "--packs") == {"packs": [f"{UID}/train"]}
    assert site.remote("ls") == {"entries": []}
    assert site.remote("rm", "--packs", f"{UID}/train")["removed"] == [f"{UID}/train"]
    assert site.remote("ls", "--packs") == {"packs": []}
    assert "there is no pack of an earlier job " in prefetching("two", directory_url).start()


def test_a_job_without_a_name_sends_no_pack(prefetching, directory_url):
    one = prefetching("one", directory_url)
    make_entry(one.store, "triton/K0")
    one.read(["triton/K0"])
    one.end()
    one.await_idle()
    assert one.packs_sent() == 0 and one.count("remote_bytes_out") == 0


def test_a_job_that_may_not_publish_sends_no_pack(prefetching, directory_url):
    one = prefetching("one", directory_url, more='[publish]\nallow = { users = ["root"] }\n')
    make_entry(one.store, "triton/K0")
    one.start()
    process = one.read(["triton/K0"])
    process("write_file", process.path("triton/own"), b"")
    one.end()
    one.await_idle()
    assert one.packs_sent() == 0


def test_a_machine_that_pushes_nothing_prefetches_too(prefetching, directory_url):
    make_pack(prefetching, directory_url)
    two = prefetching("two", directory_url, signing_key=None)
    assert "fetched 3 entries " in two.start()
    two.read(KEYS[:3])
    two.end()


def test_a_shared_job_has_a_pack(prefetching, directory_url):
    one = prefetching("one", directory_url)
    make_entry(one.store, "triton/K0")
    one.start(more=["--shared-uids"])
    one.read(["triton/K0"], uid=UID + 1)
    one.end()
    one.await_packs(1)
    assert "fetched 1 entry " in prefetching("two", directory_url).start()


def test_the_job_shows_its_name(prefetching, directory_url):
    one = prefetching("one", directory_url)
    one.start("4711", "my training")
    one.mount.cli("job", "start", "4712")
    for job, shown in (("4711", "as 'my training'"), ("4712", "no")):
        *_, last = one.mount.cli("job", "show", job).stdout.splitlines()
        assert last.split(maxsplit=1) == ["prefetching", shown]


# ---- What must not harm a job


MAGIC = b"CSHIMPK1"


def change_pack(directory_url, change):
    """Replaces the pack in the shared directory by change(pack)."""
    objects = pathlib.Path(directory_url.removeprefix("file://")) / "objects"
    path, = (path for path in objects.rglob("*") if path.is_file() and MAGIC in path.read_bytes())
    header, key, pack = path.read_bytes().split(b"\n", 2)
    pack = change(pack)
    path.write_bytes(b"%s%016x\n%s\n%s" % (header[:-16], len(pack), key, pack))  # the header contains the length


def test_an_entry_that_is_damaged_in_the_pack_is_not_used(prefetching, directory_url):
    make_pack(prefetching, directory_url)
    change_pack(directory_url, lambda pack: pack[:-1] + bytes([pack[-1] ^ 1]))  # in the last entry's archive
    two = prefetching("two", directory_url)
    printed = two.start()
    assert "fetched 2 entries " in printed and "not all entries were fetched: 1 " in printed
    assert two.entries() == set(KEYS[:2]) and two.count("remote_untrusted") == 1


@pytest.mark.parametrize("damage", [
    lambda pack: pack[:-1], lambda pack: b"x" * 100, lambda pack: b"", lambda pack: pack[:8] + b"\xff" * 16 + pack[24:],
], ids=["truncated", "not a pack", "empty", "lengths"])
def test_a_damaged_pack_is_not_used(prefetching, directory_url, damage):
    make_pack(prefetching, directory_url)
    change_pack(directory_url, damage)
    two = prefetching("two", directory_url)
    assert "the pack is damaged" in two.start()
    assert two.entries() == set() and two.count("remote_untrusted") == 1
    for key in KEYS[:3]:
        make_entry(two.store, key)
    two.read(KEYS[:3])
    two.end()
    two.await_packs(1)  # the damaged pack is replaced
    assert "fetched 3 entries " in prefetching("three", directory_url).start()


def test_a_pack_of_an_unknown_signer_is_not_used(prefetching, directory_url, scratch, program):
    make_pack(prefetching, directory_url)
    two = prefetching("two", directory_url, signing_key=None, signers=[str(other_key(program, scratch))])
    assert "not all entries were fetched: 3 " in two.start()
    assert two.entries() == set() and two.count("remote_untrusted") == 3


def other_key(program, scratch):
    """Returns a file with the public key of a signer who has signed nothing."""
    result = mounts.run(program, "remote", "keygen", scratch / "other.key")
    path = scratch / "other.pub"
    path.write_text(result.stdout)
    return path


def test_a_pack_cannot_add_what_is_not_exchanged(prefetching, directory_url):
    """Whoever can write to the engine can put other names into a pack."""
    make_pack(prefetching, directory_url)
    change_pack(directory_url,
                lambda pack: pack.replace(b"triton/K1", b"unknown/x", 1).replace(b"triton/K2", b"../../tmp", 1))
    two = prefetching("two", directory_url)
    assert "not all entries were fetched: 2 " in two.start()
    assert two.entries() == {"triton/K0"}


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_without_the_engine_a_job_starts_at_once(prefetching, redis_server, how):
    make_pack(prefetching, redis_server.url)
    two = prefetching("two", redis_server.url, timeout_ms=500)
    two.machine.await_use()
    redis_server.stop() if how == "stopped" else redis_server.kill()
    began = time.monotonic()
    assert "not all entries were fetched: " in two.start()
    assert time.monotonic() - began < 10  # 0.6 s on an idle machine
    two.read([])
    two.end()


def test_a_pack_that_could_not_be_read_is_not_replaced(prefetching, redis_server):
    make_pack(prefetching, redis_server.url)
    two = prefetching("two", redis_server.url, timeout_ms=500)
    make_entry(two.store, KEYS[0])
    redis_server.stop()
    assert "not all entries were fetched: " in two.start()
    redis_server.resume()
    two.machine.await_use(seconds=30)
    two.read(KEYS[:1])
    two.end()
    two.await_idle()
    assert two.packs_sent() == 0
    assert "fetched 3 entries " in prefetching("three", redis_server.url).start()


def test_refused_entries_of_a_pack_are_still_fetched_one_by_one(prefetching, directory_url):
    """Whoever can write to the engine could otherwise make machines refuse any entry."""
    one = make_pack(prefetching, directory_url)
    site = one.machine.site
    assert site.remote("push", KEYS[2])["pushed"] == [KEYS[2]]
    change_pack(directory_url, lambda pack: pack[:-1] + bytes([pack[-1] ^ 1]))
    two = prefetching("two", directory_url)
    assert "not all entries were fetched: 1 " in two.start()
    process = two.job_of(two.mount, "4711", UID)
    assert process("create_and_look_up", process.path(KEYS[2]), NAME)
    assert two.count("remote_hits") == 1


def test_unmounting_sends_the_last_jobs_pack(prefetching, directory_url):
    one = prefetching("one", directory_url)
    for key in KEYS:
        make_entry(one.store, key, os.urandom(30 << 20))  # large, so that the unmount begins before they are packed
    one.run(KEYS)
    assert one.mount.unmount().returncode == 0
    assert "fetched 5 entries " in prefetching("two", directory_url).start()


def test_unmounting_does_not_wait_for_a_pack(prefetching, redis_server):
    make_pack(prefetching, redis_server.url)
    two = prefetching("two", redis_server.url, timeout_ms=60_000)
    two.machine.await_use()
    redis_server.stop()
    command = [mounts.PROGRAM, "job", "start", "4711", "--uid", str(UID), "--prefetch", "train", "--mount",
               two.mount.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starting:
        assert starting.stdout.readline() == "job 4711 started\n"
        daemon = pathlib.Path(f"/proc/{two.mount.daemon_pid()}")
        assert two.mount.unmount().returncode == 0
        wait_until(lambda: not daemon.exists(), 20, "the daemon's end")  # a pack may take 60 s
        assert starting.wait(timeout=20) == 0


def test_a_broken_helper_harms_no_job(prefetching, program, scratch, monkeypatch):
    prefix = prefix_with_helper(program, scratch, """
    if request["op"] == "keys":
        page = os.memfd_create("page", os.MFD_ALLOW_SEALING)
        os.write(page, b"[]")
        fcntl.fcntl(page, fcntl.F_ADD_SEALS, ALL_SEALS)
        reply = {"id": request["id"], "last": True, "position": "0"}
        socket.send_fds(peer, [json.dumps(reply).encode()], [page])
        os.close(page)
    else:
        peer.send(json.dumps({"id": request["id"], "found": "yes"}).encode())
""")
    monkeypatch.setattr(mounts, "PROGRAM", str(prefix / "bin/cacheshim"))
    one = prefetching("one", "redis+unix:///unused")
    one.machine.await_use()
    for job in range(10):  # more than may fetch at the same time
        assert one.start(str(job)) == f"job {job}: the daemon failed at it; see its log\n"


def test_without_a_remote_tier_the_job_starts(mount_store, scratch):
    (scratch / "plain").mkdir()
    mount = mount_store(scratch / "plain")
    result = mount.cli("job", "start", "1", "--prefetch", "train")
    assert result.stdout == ("job 1 started\n"
                             "job 1: this mount has no remote tier; nothing is prefetched\n")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256])
def test_a_name_that_is_not_valid_is_refused(prefetching, directory_url, name):
    one = prefetching("one", directory_url)
    assert "nothing is prefetched" in one.start(name=name)


def test_a_user_cannot_prefetch_for_another_users_job(prefetching, directory_url):
    make_pack(prefetching, directory_url)
    two = prefetching("two", directory_url)
    two.mount.cli("job", "start", "4711", "--uid", UID)
    ask = ("import sys; control = open(sys.argv[1], 'r+b', buffering=0); control.write(sys.argv[2].encode());"
           "print(control.readall().decode())")
    request = json.dumps({"op": "job-prefetch", "job": "4711", "name": "train"})
    result = as_user(UID + 1, [PYTHON, "-c", ask, two.mount.path / ".cacheshim/control", request])
    assert f"job '4711' belongs to uid {UID}" in result.stdout
    assert two.entries() == set() and two.count("remote_bytes_in") == 0
