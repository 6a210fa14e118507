# SPDX-License-Identifier: Apache-2.0
"""Deep and wide trees of one job neither keep a thread of the daemon busy nor end the daemon."""

import errno
import json
import os
import pathlib
import subprocess

import pytest
from jobs import wait_until

USER, STRANGER = 20001, 20002
DEPTH = 9000
MOST_BYTES = 8191  # the longest path of an object in a view
MOST_LISTED = 10_000  # the most entries of a plan that one answer lists
MANY = 50_000


@pytest.fixture
def alive(mount):
    """The mount. Asserts after the test that the same daemon still serves it. The trees are too deep for
    shutil.rmtree()."""
    before = mount.daemon_pid()
    yield mount
    assert mount.daemon_pid() == before
    subprocess.run(["rm", "-rf", mount.base(".cacheshim/layers")], check=True)


def test_the_depth_of_a_tree_has_a_limit(alive, job_of):
    job = job_of(alive, "j", USER)
    job("os.makedirs", job.path("mine"), exist_ok=True)
    depth = job("agent_hostile.make_deep", job.path("mine"), DEPTH)
    assert depth == (MOST_BYTES - len("mine")) // len("/d")
    assert job("agent_hostile.error_in_the_deepest", job.path("mine"), depth) == errno.ENAMETOOLONG


@pytest.mark.parametrize("call", ["os.rename", "agent_files.exchange_repeatedly"])
def test_renames_do_not_exceed_the_limit(alive, job_of, call):
    job = job_of(alive, "j", USER)
    for top in ("mine/one", "mine/two"):
        job("os.makedirs", job.path(top), exist_ok=True)
        job("agent_hostile.make_deep", job.path(top), 3000)
    deep = job.path("mine/one/" + "d/" * 1500)
    if call == "os.rename":
        assert job.errno_of(call, job.path("mine/two"), deep + "/new") == errno.ENAMETOOLONG
    else:
        assert job.errno_of(call, job.path("mine/two"), deep + "/d", 1) == errno.ENAMETOOLONG
    assert alive.ask(op="job-layer", job="j")["ok"]


def plant_chain(top, depth):
    """Creates nested directories as root directly in the layer, because the mount refuses a tree of this depth. An
    earlier version let jobs create it."""
    here = os.open(top, os.O_PATH)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_PATH, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)


def plant_files(directory, count):
    """Creates files as root directly in the layer, which is faster than through the mount."""
    directory.mkdir()
    for number in range(count):
        os.mknod(directory / str(number))


@pytest.fixture
def wide(mount, job_of):
    """Four jobs of STRANGER, each with MANY files in its layer. Removing one of these layers takes a second."""
    four = [job_of(mount, f"wide{number}", STRANGER) for number in range(4)]
    for job in four:
        job("os.makedirs", job.path("mine"), exist_ok=True)
        [upper] = mount.uppers(job.job)
        plant_files(upper / "mine/files", MANY)
    return four


def discard_all(mount, wide):
    for job in wide:
        request = json.dumps({"op": "job-discard", "job": job.job}).encode()
        job("agent_hostile.hold_requests", str(mount.path / ".cacheshim/control"), 1, request)


def layers_left(mount):
    return len(list(mount.base(".cacheshim/layers").glob("wide*/*/upper")))


def test_the_removal_of_many_files_delays_no_other_users_request(mount, job_of, wide):
    victim = job_of(mount, "v", USER)
    victim("os.makedirs", victim.path("mine"), exist_ok=True)
    victim.write("mine/victim", b"x")
    discard_all(mount, wide)
    end = b'{"op":"job-end","job":"v","outcome":"success"}'
    assert b'"ok":true' in victim("agent_hostile.ask", str(mount.path / ".cacheshim/control"), end)
    assert layers_left(mount) > 1
    wait_until(lambda: layers_left(mount) == 0, seconds=60, what="the removal")


def test_a_view_answers_while_its_old_layer_is_removed(mount, wide):
    discard_all(mount, wide)
    for job in wide:
        job("os.makedirs", job.path("mine"), exist_ok=True)
        job.write("mine/new", b"x")
        assert "files" not in job.listdir("mine")
    assert layers_left(mount) > 4  # four new layers, and old ones
    wait_until(lambda: layers_left(mount) == 4, seconds=60, what="the removal")
    for job in wide:
        assert job.read("mine/new") == b"x"


@pytest.mark.timeout_s(60)
def test_requests_about_a_tree_that_is_too_deep(mount, job_of, mount_store, store):
    """The time of each walk is linear in the number of directories. (In an earlier version, it grew with the square of
    the depth, and reached a minute.)"""
    job = job_of(mount, "j", USER)
    job("os.makedirs", job.path("mine"), exist_ok=True)
    job.write("mine/file", b"x")
    [upper] = mount.uppers("j")
    mount.kill_daemon()
    mount.detach()
    plant_chain(pathlib.Path(upper, "mine"), DEPTH)
    try:
        again = mount_store(store)
        for _ in range(3):
            assert again.ask(op="job-layer", job="j")["ok"]
            assert again.ask(op="job-publish", job="j", dry_run=True)["ok"]
            assert again.ask(op="job-discard", job="j", dry_run=True)["ok"]
            assert again.ask(op="explain", job="j", path="mine/" + "d/" * 4000 + "d")["ok"]
        ended = again.ask(op="job-end", job="j", outcome="success")
        assert ended["ok"] and not again.base("mine/d").exists()
        assert not again.base(".cacheshim/layers/j").exists()
    finally:
        subprocess.run(["rm", "-rf", store], check=True)


@pytest.mark.timeout_s(60)
@pytest.mark.parametrize("names", [("cubins",), ("generated", "cubins"), ("cached_ops", "x"), ("autotune", "v2")],
                         ids=lambda names: names[0])
def test_a_deep_path_that_patterns_with_any_depth_match(alive, job_of, names):
    """A pattern such as **/cubins/**/*.lock must not be tried at all combinations of depths."""
    job = job_of(alive, "j", USER)
    job("os.makedirs", job.path("flashinfer"), exist_ok=True)
    assert job("agent_hostile.make_deep", job.path("flashinfer"), 700, names) == 700
    assert alive.ask(op="job-publish", job="j", dry_run=True)["ok"]
    assert alive.ask(op="job-end", job="j", outcome="success")["ok"]


def test_a_tree_that_is_too_deep_for_the_base_stays_in_the_layer(alive, job_of):
    job = job_of(alive, "j", USER)
    for name in ("deep", "flat"):
        job("os.makedirs", job.path("mine", name))
        job.write(f"mine/{name}/file", b"x")
    job("agent_hostile.make_deep", job.path("mine/deep"), 200)
    plan = {one["entry"]: one.get("why", "") for one in
            alive.ask(op="job-publish", job="j", dry_run=True)["plan"]}
    assert set(plan) == {"mine/deep", "mine/flat"}
    assert alive.ask(op="job-end", job="j", outcome="success")["incomplete"] == 1
    assert alive.base("mine/flat/file").exists() and not alive.base("mine/deep").exists()


def test_a_lock_file_makes_no_deep_directories_in_the_base(alive, job_of):
    job = job_of(alive, "j", USER)
    job("os.makedirs", job.path("inductor/locks"))
    job("agent_hostile.make_deep", job.path("inductor/locks"), 200)
    deepest = "inductor/locks/" + "d/" * 200
    assert job.errno_of("write_file", job.path(deepest + "x.lock"), b"") == errno.ENAMETOOLONG
    assert not alive.base("inductor/locks/d").exists()


@pytest.mark.timeout_s(240)
def test_a_directory_with_many_names(alive, job_of):
    """An answer lists only part of a large plan, because the daemon keeps the answer in memory until the client reads
    it."""
    count = MOST_LISTED + 2000
    job = job_of(alive, "j", USER)
    job("os.makedirs", job.path("mine"), exist_ok=True)
    for begin in range(0, count, 1000):
        job("agent_hostile.link_names", job.path("mine"), begin, 1000)
    assert alive.ask(op="job-layer", job="j")["files"] == count
    for request in ("job-publish", "job-discard"):
        answer = alive.ask(op=request, job="j", dry_run=True)
        assert len(answer["plan"]) == MOST_LISTED and answer["omitted"] == count - MOST_LISTED
    assert "2000 entries more" in alive.cli("job", "discard", "j", "--dry-run").stdout
    assert alive.ask(op="job-discard", job="j")["ok"]


def test_chains_and_loops_of_symlinks(alive, job_of):
    job = job_of(alive, "j", USER)
    job("os.makedirs", job.path("triton/KEY"))
    job("os.symlink", "link0", job.path("triton/KEY/link100"))
    for number in range(100):
        job("os.symlink", f"link{number + 1}", job.path(f"triton/KEY/link{number}"))
    job("os.symlink", ".", job.path("triton/KEY/self"))
    job.put_group("KEY", {"k.cubin": b"x"})
    assert alive.base("triton/KEY/link5").is_symlink()
    for request in ({"op": "verify"}, {"op": "gc", "dry_run": True}, {"op": "job-layer", "job": "j"},
                    {"op": "explain", "job": "j", "path": "triton/KEY/link5"},
                    {"op": "explain", "job": "j", "path": "triton/KEY/self/self/self/k.cubin"}):
        assert alive.ask(**request)["ok"]
    assert job_of(alive, "k", STRANGER).errno_of("read_file", job.path("triton/KEY/link5")) == errno.ELOOP
    assert alive.ask(op="job-end", job="j", outcome="success")["ok"]
