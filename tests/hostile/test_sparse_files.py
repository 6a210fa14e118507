# SPDX-License-Identifier: Apache-2.0
"""Files with large holes, which any user can create instantly and without using space, do not delay other users.

The holes are so large that the daemon needs seconds for the digest of one hole. So the tests measure no times, but
compare the order in which requests end. A daemon that served one request after the other would exceed the time limit of
a call."""

import json
import os
import pathlib
import re
import select
import signal
import subprocess

import pytest
from jobs import wait_until

USER, STRANGER = 20001, 20002
GIB, TIB = 1 << 30, 1 << 40


@pytest.fixture
def publishers(mount, job_of):
    """Four processes of STRANGER, each in its own job. Each publishes an entry of 16 files with holes of 1 TiB, which
    takes a minute or more. After the test, the fixture aborts the mount."""
    processes = [job_of(mount, f"h{number}", STRANGER) for number in range(4)]
    for number, job in enumerate(processes):
        job.start("agent_hostile.publish_holes", job.path("triton"), f"H{number}", 16, TIB)
    staged = mount.base(".cacheshim/staging")
    wait_until(lambda: len(list(staged.glob("*/*/tree"))) == 4, what="four staged entries")
    yield processes
    # Aborts the connection: a killed daemon does not exit while a client holds the lock of a directory in which the
    # daemon invalidates a name.
    subprocess.run(["umount", "-f", "-l", mount.path], check=True)


@pytest.fixture
def hole(mount, job_of):
    """A process of STRANGER. In its layer, the file triton/H/hole is a hole of 1 TiB."""
    job = job_of(mount, "h", STRANGER)
    job("os.makedirs", job.path("triton/H"))
    job("agent_hostile.make_hole", job.path("triton/H/hole"), TIB)
    return job


def explain(path, job):
    return json.dumps({"op": "explain", "path": path, "job": job}).encode()


def control(mount):
    return str(mount.path / ".cacheshim/control")


def is_waiting(job):
    """Returns true if the call that job.start() has sent has not returned yet."""
    return not select.select([job.stdout_fd], [], [], 0)[0]


def blocks(path):
    return os.stat(path).st_blocks


def test_publishing_holes_delays_no_other_user(mount, job_of, publishers):
    """Another user's entry is published before any entry of the four publishers."""
    victim = job_of(mount, "v", USER)
    victim.put_group("V", {"k.cubin": b"1234"})
    assert mount.base("triton/V/k.cubin").read_bytes() == b"1234"
    assert not list(mount.base("triton").glob("H*/__grp__*"))
    assert all(is_waiting(job) for job in publishers)


def test_publishing_the_same_entry_waits_for_no_other_user(mount, job_of, publishers):
    """Another user publishes an entry with the same name as an entry that is being published."""
    victim = job_of(mount, "v", USER)
    victim.put_group("H0", {"k.cubin": b"1234"})
    assert mount.base("triton/H0/k.cubin").read_bytes() == b"1234"
    assert all(is_waiting(job) for job in publishers)


def test_requests_for_holes_delay_no_other_users_request(mount, job_of, hole):
    """24 requests of one user take at least six times as long as one. Another user's request is answered before the
    last of them."""
    hole("agent_hostile.hold_requests", control(mount), 24, explain("triton/H/hole", "h"))
    victim = job_of(mount, "v", USER)
    victim.put("V", "k.cubin", b"1234")
    answer = victim("agent_hostile.ask", control(mount), explain("triton/V/k.cubin", "v"))
    assert json.loads(answer)["size"] == 4
    assert victim("agent_hostile.ask", control(mount), b'{"op":"job-end","job":"v","outcome":"success"}')
    assert hole("agent_hostile.count_answers") < 24


@pytest.mark.parametrize("leave", ["agent_hostile.close_requests", "kill"])
def test_requests_whose_client_has_gone_are_dropped(mount, job_of, hole, leave):
    """The client of 200 requests, each of which would take seconds, closes their files or dies. Then the same user's
    next request is answered within the time limit of a call."""
    client = job_of(mount, "h", STRANGER)
    client("agent_hostile.hold_requests", control(mount), 200, explain("triton/H/hole", "h"))
    if leave == "kill":
        client.kill()
    else:
        client(leave)
    hole.put("H", "small", b"1234")
    answer = hole("agent_hostile.ask", control(mount), explain("triton/H/small", "h"))
    assert json.loads(answer)["size"] == 4


def test_a_jobs_end_is_carried_out_if_its_client_has_gone(mount, job_of):
    job = job_of(mount, "j", USER)
    job.put("KEY", "k.cubin", b"1234")
    job("agent_hostile.send_requests", control(mount), 1, b'{"op":"job-end","job":"j","outcome":"success"}')
    assert mount.cli("job", "wait", "j").returncode == 0
    assert not mount.base(".cacheshim/layers/j").exists()


def test_a_daemon_ends_without_publishing_holes(mount, job_of):
    job = job_of(mount, "h", STRANGER)
    job.start("agent_hostile.publish_holes", job.path("triton"), "H", 64, TIB)
    wait_until(lambda: list(mount.base(".cacheshim/staging").glob("*/*/tree")), what="a staged entry")
    mount.kill_daemon(signal.SIGTERM)
    assert mount.uppers("h")  # the layer stays for the next daemon


def test_a_daemon_ends_without_answering_requests_for_holes(mount, hole):
    hole("agent_hostile.hold_requests", control(mount), 200, explain("triton/H/hole", "h"))
    mount.kill_daemon(signal.SIGTERM)


def most_memory(pid):
    """Returns the largest resident size of a process so far, in MiB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) >> 10


def test_the_daemons_memory_does_not_grow_with_a_hole(mount, job_of):
    """The daemon stages, compares, copies and explains a hole."""
    first, second = job_of(mount, "j", USER), job_of(mount, "k", STRANGER)
    first.put_group("SMALL", {"k.cubin": b"1234"})
    before = most_memory(mount.daemon_pid())
    second("agent_hostile.publish_holes", second.path("triton"), "KEY", 1, 256 * GIB, complete=False)
    first("agent_hostile.publish_holes", first.path("triton"), "KEY", 1, 256 * GIB)
    second("agent_hostile.complete_entry", second.path("triton/KEY"), 1)
    answer = first("agent_hostile.ask", control(mount), explain("triton/KEY/k0.cubin", "j"))
    assert "xxh3" in json.loads(answer)
    first("agent_hostile.write_at", first.path("triton/KEY/k0.cubin"), 128 * GIB, b"x")
    assert most_memory(mount.daemon_pid()) < before + 16


def test_a_published_hole_has_the_digest_of_its_bytes(mount, job_of):
    """`verify` accepts a file with a hole, and the same file without holes."""
    job = job_of(mount, "j", USER)
    job("agent_hostile.publish_holes", job.path("triton"), "KEY", 1, 64 << 20)
    published = mount.base("triton/KEY/k0.cubin")
    assert blocks(published) == 0
    mount.cli("verify")
    written = published.with_name("written")
    written.write_bytes(bytes(64 << 20))
    os.chmod(written, 0o644)
    os.rename(written, published)
    mount.cli("verify")
    with open(published, "r+b") as file:
        file.seek(32 << 20)
        file.write(b"x")
    assert "its content differs" in mount.cli("verify", check=False).stdout


def test_a_copy_of_a_hole_is_a_hole(mount, job_of):
    job = job_of(mount, "j", USER)
    job("agent_hostile.publish_holes", job.path("triton"), "KEY", 1, 512 * GIB)
    other = job_of(mount, "k", USER)
    other("agent_hostile.write_at", other.path("triton/KEY/k0.cubin"), 256 * GIB, b"x")
    [upper] = mount.uppers("k")
    assert other("os.stat", other.path("triton/KEY/k0.cubin")).st_size == 512 * GIB
    assert blocks(upper / "triton/KEY/k0.cubin") < 1024


def test_equal_holes_are_recognized(mount, job_of):
    """A second job builds the same entry, before the first one has published it: the daemon compares the files."""
    first, second = job_of(mount, "j", USER), job_of(mount, "k", STRANGER)
    second("agent_hostile.publish_holes", second.path("triton"), "KEY", 1, 512 * GIB, complete=False)
    first("agent_hostile.publish_holes", first.path("triton"), "KEY", 1, 512 * GIB)
    second("agent_hostile.complete_entry", second.path("triton/KEY"), 1)
    assert mount.layer_names("k") == []
    assert mount.stats()["publish_conflicts"] == 0


def test_a_file_beyond_the_maximum_size_is_not_published(mount, job_of):
    job = job_of(mount, "j", USER)
    try:
        job("agent_hostile.publish_holes", job.path("triton"), "KEY", 1, TIB + 1)
    except OSError as error:
        pytest.skip(f"no files of more than 1 TiB here: {error}")
    assert not mount.base("triton/KEY").exists()
    answer = json.loads(job("agent_hostile.ask", control(mount), explain("triton/KEY/k0.cubin", "j")))
    assert answer["not_published"] == "a file of it is larger than 1 TiB"
    assert answer["size"] == TIB + 1
    assert "xxh3" not in answer
    job.put_group("OTHER", {"k.cubin": b"x"})
    assert mount.base("triton/OTHER").exists()
