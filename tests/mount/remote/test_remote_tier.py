# SPDX-License-Identifier: Apache-2.0
"""Daemons with their own stores exchange entries through an engine. Each mount stands for a machine."""

import json
import os
import pathlib
import signal
import time

import mounts
import pytest
from jobs import wait_until
from sites import KEY, NAME, files_of, prefix_with_helper

LEASE_S = 10  # RemoteExchange::kLeaseTime


def push_one(machine, url, content=b"built"):
    """Builds an entry on a new machine, and returns the machine once the entry is in the tier."""
    one = machine("one", url)
    assert not one.look()
    one.build(content=content)
    one.await_count("remote_pushed")
    return one


def builder_and_waiter(machine, url, **options):
    """Returns two machines with `options`: a job on the first builds an entry, and a job on the second waits for it."""
    one, two = machine("one", url, **options), machine("two", url, **options)
    assert not one.look()
    two.start_look()
    two.await_count("remote_lease_waits")
    return one, two


def test_a_machine_finds_what_another_one_has_built(machine, url):
    one = push_one(machine, url)
    two = machine("two", url)
    assert two.look() and two.job.read(f"{KEY}/{NAME}") == b"built"
    assert files_of(two.site.store) == files_of(one.site.store)
    counts = two.mount.stats()
    assert (counts["remote_hits"], counts["remote_pushed"], counts["flight_leases"]) == (1, 0, 0)
    assert counts["remote_bytes_in"] == one.count("remote_bytes_out") > 0
    assert one.count("remote_misses") == 1 and one.count("remote_hits") == 0


def test_a_machine_that_is_mounted_already_finds_it_too(machine, url):
    """The machine learns of the entry from an update of the catalogue, or from the reply to its lease request."""
    two = machine("two", url)
    push_one(machine, url)
    assert two.look()
    assert two.count("remote_hits") == 1


def test_a_process_waits_for_the_builder_on_another_machine(machine, url):
    one, two = builder_and_waiter(machine, url)
    one.build()
    assert two.job.result()
    assert (two.count("remote_hits"), two.count("flight_hits"), two.count("flight_leases")) == (1, 1, 0)


def test_a_builder_that_gives_up_is_replaced_on_another_machine(machine, redis_url):
    one, two = builder_and_waiter(machine, redis_url)
    began = time.monotonic()
    one.job.kill()
    assert not two.job.result()
    assert time.monotonic() - began < LEASE_S / 2  # at once, because the daemon releases the lease
    two.build()
    two.await_count("remote_pushed")


@pytest.mark.timeout_s(180)
def test_a_dead_machines_lease_ends(machine, redis_url):
    one, two = builder_and_waiter(machine, redis_url)
    began = time.monotonic()
    one.mount.kill_daemon()
    assert not two.job.result()
    assert time.monotonic() - began < LEASE_S + 15  # LEASE_S + 1 on an idle machine


def test_a_lease_is_renewed_while_its_holder_builds(machine, redis_url):
    one, two = machine("one", redis_url), machine("two", redis_url)
    assert not one.look()
    two.start_look()
    time.sleep(LEASE_S + 3)  # no event shows that the lease has not ended
    one.build()
    assert two.job.result() and two.count("remote_hits") == 1


def test_eight_machines_build_an_entry_once(machine, redis_url):
    all_of_them = [machine(str(number), redis_url) for number in range(8)]
    for one in all_of_them:
        one.start_look()
    builders = []
    for one in all_of_them:
        wait_until(lambda one=one: one.count("remote_lease_waits") or one.count("flight_leases"), 20, "a wait or a lease")
        builders += [one] * one.count("flight_leases")
    builder, = builders
    assert not builder.job.result()
    builder.build()
    assert all(one.job.result() for one in all_of_them if one is not builder)
    assert sum(one.count("flight_leases") for one in all_of_them) == 1
    digests = {frozenset(files_of(one.site.store).items()) for one in all_of_them}
    assert len(digests) == 1


def test_s3_keeps_what_is_pushed_first(machine, s3_url):
    """S3 has no leases: two machines that miss an entry at the same time both build it."""
    one, two = machine("one", s3_url), machine("two", s3_url)
    assert not one.look() and not two.look()
    one.build(content=b"first")
    one.await_count("remote_pushed")
    two.build(content=b"second")
    assert two.job.read(f"{KEY}/{NAME}") == b"second"
    assert two.mount.end_job(two.job.job).returncode == 0
    assert two.mount.unmount().returncode == 0  # waits for the second push
    three = machine("three", s3_url)
    assert three.look() and three.job.read(f"{KEY}/{NAME}") == b"first"
    assert one.count("remote_errors") == three.count("remote_errors") == 0


def test_a_machine_without_a_key_only_fetches(machine, redis_url):
    push_one(machine, redis_url)
    two = machine("two", redis_url, signing_key=None)
    assert two.look()
    assert not two.look("triton/OTHER")
    two.build("triton/OTHER")
    assert two.count("entries_published") == 1
    assert two.site.remote("ls") == {"entries": [KEY]}


def test_what_a_user_may_not_publish_is_not_pushed(machine, redis_url):
    one = machine("one", redis_url, more='[publish]\nallow = { users = ["root"] }\n')
    assert not one.look()
    one.build()
    assert one.job.read(f"{KEY}/{NAME}") == b"built"
    assert one.mount.unmount().returncode == 0
    assert one.site.remote("ls") == {"entries": []}


def test_other_views_see_a_fetched_entry_at_once(machine, redis_url, job_of):
    two = machine("two", redis_url)
    other = job_of(two.mount, "other", 20002)
    other.listdir("triton")
    assert not other.exists(KEY)  # the kernel now caches that the name is absent
    push_one(machine, redis_url)
    assert two.look()
    assert other.exists(KEY)


def test_a_lease_lasts_until_the_entry_is_pushed(machine, redis_url):
    one, two = builder_and_waiter(machine, redis_url)
    one.build(content=os.urandom(60 << 20))  # the push takes longer than the next claim
    assert two.job.result()


# ---- Engines that fail

@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_without_the_engine_a_machine_works_alone(machine, redis_server, how):
    one = machine("one", redis_server.url, wait_ms=250)
    one.await_use()
    redis_server.stop() if how == "stopped" else redis_server.kill()
    began = time.monotonic()
    assert not one.look()
    assert time.monotonic() - began < 5  # 0.25 s on an idle machine
    one.build()
    assert one.look() and one.count("entries_published") == 1
    one.await_use(False)
    assert not one.look("triton/OTHER")
    assert one.count("remote_breaker_open") == 1 and one.tier()["why"]
    redis_server.resume() if how == "stopped" else redis_server.start()
    one.await_use(seconds=30)
    one.await_count("remote_pushed")  # what was published meanwhile
    assert one.site.remote("ls") == {"entries": [KEY]}


def test_waits_end_when_the_engine_stops(machine, redis_server):
    _, two = builder_and_waiter(machine, redis_server.url, wait_ms=250)
    redis_server.stop()
    began = time.monotonic()
    assert not two.job.result()
    assert time.monotonic() - began < 10  # 0.5 s on an idle machine


def test_hits_need_no_engine(machine, redis_server):
    one = push_one(machine, redis_server.url)
    redis_server.stop()
    before = one.mount.stats()
    for _ in range(100):
        assert one.look() and one.job.read(f"{KEY}/{NAME}") == b"built"
    after = one.mount.stats()
    assert {name: after[name] - before[name] for name in after if name.startswith("remote_bytes")} == {
        "remote_bytes_in": 0, "remote_bytes_out": 0}


def test_a_machine_is_mounted_although_its_engine_is_absent(machine, scratch):
    began = time.monotonic()
    one = machine("one", f"redis+unix://{scratch}/absent.sock")
    assert time.monotonic() - began < 20
    assert not one.look()
    assert not one.tier()["used"] and "absent.sock" in one.tier()["why"]
    assert one.log().count("the remote tier is not used") == 1


def test_a_helper_that_dies_is_started_again(machine, redis_url):
    one = machine("one", redis_url)
    one.await_use()
    helper = helper_of(one)
    status = pathlib.Path(f"/proc/{helper}/status").read_text()
    assert "\nUid:\t65534\t65534\t65534\t65534\n" in status
    os.kill(helper, signal.SIGKILL)
    one.await_use(False)
    one.await_use(seconds=30)
    assert helper_of(one) != helper
    assert not one.look()
    one.build()
    one.await_count("remote_pushed")


def helper_of(machine):
    helper, = (pid for pid in mounts.processes_naming("cacheshim-remote")
               if f"\nPPid:\t{machine.mount.daemon_pid()}\n" in pathlib.Path(f"/proc/{pid}/status").read_text())
    return helper


def test_keys_that_cannot_be_read_do_not_prevent_the_mount(machine, redis_url, key):
    key.chmod(0o644)
    one = machine("one", redis_url)
    assert not one.look()
    assert "the remote tier is not used now: " in one.log()
    assert str(key) in one.tier()["why"] and not one.tier()["used"]


def test_unmounting_sends_what_was_published_last(machine, url):
    one = machine("one", url, env={"CACHESHIM_PUBLISH": "end"})
    keys = [f"triton/KEY{number}" for number in range(20)]
    for each in keys:
        one.build(each, content=os.urandom(1 << 20))
    assert one.mount.end_job(one.job.job).returncode == 0
    log = open(one.mount.run_directory() / "log")
    assert one.mount.unmount().returncode == 0
    with log:
        assert "remote tier is not used" not in log.read()
    assert one.site.remote("ls") == {"entries": sorted(keys)}


# Each text is the JSON that a broken helper adds to its replies, or sends instead of a reply.
@pytest.mark.parametrize("reply", [
    '"error": 5', '"error": "full", "text": []', '"found": "yes"', '"found": true', '"fence": {}', '"last": "no", "position": 7',
    '"id": "x"', '"id": -1', "not JSON", "[]", "",  # "": each reply to a claim says that another machine builds
])
def test_a_broken_helper_harms_nobody(machine, program, scratch, monkeypatch, reply):
    answer = f"""
    more = {reply!r}
    whole = json.dumps({{"id": request["id"]}})
    peer.send((whole[:-1] + ", " + more + "}}" if more.startswith('"') else more or whole).encode())
"""
    prefix = prefix_with_helper(program, scratch, answer)
    monkeypatch.setattr(mounts, "PROGRAM", str(prefix / "bin/cacheshim"))
    one = machine("one", "redis+unix:///unused", wait_ms=250, before="flight_timeout = 1\n")
    pid = one.mount.daemon_pid()
    assert not one.look()
    one.build()
    assert one.look() and one.job.read(f"{KEY}/{NAME}") == b"built"
    began = time.monotonic()
    assert not any(one.look(f"triton/OTHER{number}") for number in range(20))
    assert time.monotonic() - began < 15  # at once; 20 s if each lookup waited for flight_timeout
    assert one.mount.daemon_pid() == pid and one.count("remote_hits") == 0
    assert one.mount.unmount().returncode == 0


@pytest.fixture
def machine_with_helper(machine, program, scratch, monkeypatch):
    """machine_with_helper(answer) mounts a store whose helper handles requests by the lines of Python in `answer`. The
    helper records the operation of each request in the file `asked`."""
    def make(answer, **options):
        record = f"""
    with open({str(scratch / "asked")!r}, "a") as file:
        file.write(request["op"] + " " + request.get("since", "") + chr(10))
"""
        (scratch / "asked").touch()
        (scratch / "asked").chmod(0o666)
        prefix = prefix_with_helper(program, scratch, record + answer)
        monkeypatch.setattr(mounts, "PROGRAM", str(prefix / "bin/cacheshim"))
        return machine("one", "redis+unix:///unused", wait_ms=250, **options)
    return make


def asked(scratch, what):
    return [line for line in (scratch / "asked").read_text().splitlines() if line.startswith(what)]


PAGES = """
    if request["op"] == "keys":
        at = int(request["since"] or "0")
        page = os.memfd_create("page", os.MFD_ALLOW_SEALING)
        os.write(page, json.dumps([f"entries/0/triton/K{at}-{i}" for i in range(1000)]).encode())
        fcntl.fcntl(page, fcntl.F_ADD_SEALS, ALL_SEALS)
        reply = {"id": request["id"], "last": at >= 11, "position": str(min(at + 1, 12))}
        socket.send_fds(peer, [json.dumps(reply).encode()], [page])
        os.close(page)
"""


def test_each_page_of_the_catalogue_is_asked_for_once(machine_with_helper, scratch):
    one = machine_with_helper(PAGES)
    one.await_use()
    assert one.tier()["known"] == 12_000 + 1000 * ("keys 12" in asked(scratch, "keys"))
    pages = [line for line in asked(scratch, "keys") if line != "keys 12"]  # "keys 12" are the later updates
    assert pages == ["keys "] + [f"keys {number}" for number in range(1, 12)]


def test_a_malformed_catalogue_is_asked_for_at_growing_intervals(machine_with_helper, scratch):
    one = machine_with_helper("""
    peer.send(json.dumps({"id": request["id"], "last": True, "position": 7}).encode())
""")
    began = time.monotonic()
    wait_until(lambda: len(asked(scratch, "keys")) >= 4, 30, "four requests")
    assert time.monotonic() - began > 5  # at the mount, and after 1, 2 and 4 s
    assert not one.tier()["used"] and "no list of keys" in one.tier()["why"]
    assert len(one.log()) < 10_000


def test_names_that_engines_refuse_are_not_asked_for(machine_with_helper, scratch):
    one = machine_with_helper(PAGES + """
    else:
        peer.send(json.dumps({"id": request["id"], "error": "refused", "text": "no"}).encode())
""")
    one.await_use()
    for key in ("triton/A\x01B", "triton/" + "\x7f" * 10):
        assert not one.look(key)
    assert not asked(scratch, "claim")
    for number in range(3):
        assert not one.look(f"triton/KEY{number}")
    assert len(asked(scratch, "claim")) == 3 and one.tier()["used"], "a refused claim is not repeated"


def test_a_helper_that_does_not_start_delays_nobody(machine, program, scratch, monkeypatch):
    prefix = prefix_with_helper(program, scratch, "")
    helper = prefix / "libexec/cacheshim/cacheshim-remote"
    helper.write_text("#!/bin/sh\nexec sleep 1000\n")
    monkeypatch.setattr(mounts, "PROGRAM", str(prefix / "bin/cacheshim"))
    began = time.monotonic()
    one = machine("one", "redis+unix:///unused", wait_ms=250)
    assert not one.look()
    pid = one.mount.daemon_pid()
    one.mount.unmount()
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), 20, "the daemon's end")
    assert time.monotonic() - began < 25  # 5 s on an idle machine


# ---- Objects that are wrong

def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def truncate(path):
    """Also corrects the length in the engine's own header. Otherwise, the engine would not return the object."""
    header, key, body = path.read_bytes().split(b"\n", 2)
    path.write_bytes(b"%s%016x\n%s\n%s" % (header[:-16], len(body) - 1, key, body[:-1]))


def clear_the_signature(path):
    data = bytearray(path.read_bytes())
    start = data.index(b"CSHIMOB1")
    data[start + 20:start + 84] = bytes(64)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flip_a_byte, truncate, clear_the_signature])
def test_a_wrong_object_is_never_visible(machine, directory_url, damage):
    push_one(machine, directory_url, b"original")
    directory = pathlib.Path(directory_url.removeprefix("file://"))
    path, = (path for path in (directory / "objects").rglob("*") if path.is_file())
    path.chmod(0o644)
    damage(path)
    two = machine("two", directory_url)
    assert not two.look()
    assert two.count("remote_untrusted") == 1 and two.count("remote_hits") == 0
    two.build(content=b"rebuilt")
    assert two.job.read(f"{KEY}/{NAME}") == b"rebuilt"
    assert list(files_of(two.site.store).values()) == [b"rebuilt"]
    assert "is not used: " in two.log()


def test_an_entry_of_an_unknown_signer_is_never_visible(program, scratch, machine, redis_url):
    push_one(machine, redis_url)
    other = scratch / "other.key"
    assert mounts.run(program, "remote", "keygen", other).returncode == 0
    two = machine("two", redis_url, signing_key=other, signers=[])
    assert not two.look()
    assert two.count("remote_untrusted") == 1
    two.build(content=b"rebuilt")
    assert two.job.read(f"{KEY}/{NAME}") == b"rebuilt"


def test_a_refused_object_is_fetched_once(machine, redis_url, program, scratch, job_of):
    push_one(machine, redis_url)
    other = scratch / "other.key"
    assert mounts.run(program, "remote", "keygen", other).returncode == 0
    two = machine("two", redis_url, signing_key=other, signers=[])
    for number in range(3):
        assert not two.look()
        two.job.kill()
        two.job = job_of(two.mount, f"next-{number}", 20002 + number)
    assert two.count("remote_untrusted") == 1


def test_an_older_generation_is_not_used(machine, redis_url):
    push_one(machine, redis_url)
    two = machine("two", redis_url, generation=1)
    assert not two.look()
    two.build(content=b"new")
    two.await_count("remote_pushed")
    assert machine("three", redis_url, generation=1).look()


# ---- What users see

def test_status_explain_and_doctor_show_the_tier(machine, redis_url):
    one = push_one(machine, redis_url)
    one.await_use()
    assert one.tier()["urls"] == [redis_url]
    assert redis_url in one.mount.cli("status").stdout
    two = machine("two", redis_url)
    assert two.look()
    assert "from the remote tier" in two.explain()
    assert json.loads(two.explain("--json"))["published"]["job"] == "remote"
    doctor = two.mount.cli("doctor", "--config", two.site.config, check=False).stdout
    assert "the engine answers" in doctor


def test_explain_names_the_wait_for_another_machine(machine, redis_url):
    one, two = builder_and_waiter(machine, redis_url)
    assert "another machine" in two.explain()
    one.build()
    assert two.job.result()
