# SPDX-License-Identifier: Apache-2.0
"""Uses each family's cache on a mount: cold, warm, and with two jobs that build the same entry at once."""

import itertools
import os
import pathlib

import jobs
import mounts
import pytest
import replays

MARKS = (b"one-mark", b"two-mark")
FAMILIES = [pytest.param(replay, id=replay.name) for replay in replays.ALL]
EARLY = [pytest.param(replay, id=replay.name) for replay in replays.ALL if replay.early]


def base_files(mount):
    """Returns {path: data} of the base's files, without lock files."""
    families = [top for top in mount.store.iterdir() if top.name != ".cacheshim"]
    return {str(path.relative_to(mount.store)): path.read_bytes()
            for top in families for path in top.rglob("*")
            if path.is_file() and not path.name.endswith("lock")}


def read_all(job, paths):
    return {path: job.read(path) for path in paths}


def wait_for_all(mount, replay):
    """Waits until all files of the replay are published. An entry that a close completes is published shortly after
    that close."""
    jobs.wait_until(lambda: set(replay.files(MARKS[0])) <= set(base_files(mount)),
                    what=f"that all of {replay.name} is published")


def run_to_its_end(steps):
    for _ in steps:
        pass


def expected(replay, mark, found):
    """Returns the files that the replay creates with `mark`. For a file whose content the replay does not know, returns
    the content in `found`."""
    return {path: found.get(path) if data is None else data
            for path, data in replay.files(mark).items()}


@pytest.mark.parametrize("replay", FAMILIES)
def test_a_cold_cache_is_published_and_then_found_warm(mount, two_jobs, replay):
    one, two = two_jobs
    mark = MARKS[0]
    run_to_its_end(replay.steps(one, mark))
    if not replay.early:
        assert base_files(mount) == {}, "published before its job's success"
        mount.end_job("one")
    wait_for_all(mount, replay)
    found = base_files(mount)
    assert found == expected(replay, mark, found)
    assert read_all(two, found) == found
    assert mount.layer_files("two") == {}
    if replay.early:  # temporary files and locks are not published at the end either
        mount.end_job("one")
        assert base_files(mount) == found
    assert mount.stats()["publish_conflicts"] == 0


def names_in(directory):
    """Returns the names in a directory, which may not exist."""
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()


@pytest.mark.parametrize("replay", EARLY)
def test_no_entry_is_ever_published_in_part(mount, two_jobs, replay):
    one, _ = two_jobs
    paths = [pathlib.PurePath(path) for path in replay.files(MARKS[0])]
    whole = {path.parent: {other.name for other in paths if other.parent == path.parent}
             for path in paths}
    for _ in replay.steps(one, MARKS[0]):
        for directory, names in whole.items():
            there = names & names_in(mount.base(directory))
            singly = replay.name in ("ccache",)  # in ccache, each file is an entry
            assert singly or there in (set(), names), f"half of {directory} is published"


@pytest.mark.parametrize("replay", FAMILIES)
def test_two_jobs_that_build_the_same_entry_get_one_complete_build(mount, two_jobs, replay):
    builders = [replay.steps(job, mark) for job, mark in zip(two_jobs, MARKS)]
    for _ in itertools.zip_longest(*builders):
        pass
    for job in ("one", "two"):
        if replay.early:
            break
        mount.end_job(job)
    wait_for_all(mount, replay)
    found = base_files(mount)
    versions = [expected(replay, mark, found) for mark in MARKS]
    whole_entries = {os.path.dirname(path) for path in found}
    for directory in whole_entries:
        def part(version, directory=directory):
            return {path: data for path, data in version.items() if os.path.dirname(path) == directory}
        assert part(found) in [part(version) for version in versions], f"{directory} is mixed"
    assert set(found) == set(versions[0])
    if replay.early:
        for job in two_jobs:
            seen = read_all(job, versions[0])
            for directory in whole_entries:
                mine = {path: data for path, data in seen.items()
                        if os.path.dirname(path) == directory}
                assert any(mine == {path: seen[path] if data is None else data
                                    for path, data in replay.files(other).items()
                                    if os.path.dirname(path) == directory} for other in MARKS), directory


def test_uv_links_its_wheels_by_the_mount_path(mount, two_jobs):
    one, two = two_jobs
    run_to_its_end(replays.uv_0_11(one, MARKS[0]))
    assert two.read("uv/wheels-v5/pypi/six/1.0/six.py") == MARKS[0]
    link = mount.base("uv/wheels-v5/pypi/six/1.0")
    assert os.readlink(link) == f"{mount.path}/uv/archive-v0/{MARKS[0].hex()[:16]}"


def test_uv_links_its_wheels_by_a_relative_path(mount, two_jobs):
    one, two = two_jobs
    run_to_its_end(replays.uv(one, MARKS[0]))
    assert two.read("uv/wheels-v6/pypi/six/1.0/six.py") == MARKS[0]
    assert two.read("uv/wheels-v6/pypi/six/1.0.http") == MARKS[0]
    assert two.read("uv/wheels-v6/pypi/six/1.0/Cargo.lock") == MARKS[0] * 1000
    assert mount.stats()["publish_refused"] == 0


def test_an_extension_that_is_built_already_is_not_built_again(mount, two_jobs):
    """PyTorch takes the baton and runs ninja each time it starts; ninja must find the published library."""
    one, two = two_jobs
    run_to_its_end(replays.torch_extensions(one, MARKS[0]))
    before = base_files(mount)
    baton = two.path(replays.EXTENSION, "lock")
    two("release", two("hold", baton, os.O_CREAT | os.O_EXCL))
    assert two.read(f"{replays.EXTENSION}/fused.so") == before[f"{replays.EXTENSION}/fused.so"]
    two("os.remove", baton)
    assert base_files(mount) == before
    assert mount.stats()["entries_published"] == 1


def test_a_failed_build_under_a_baton_publishes_nothing(mount, two_jobs):
    one, _ = two_jobs
    steps = replays.torch_extensions(one, MARKS[0])
    for _ in range(5):  # stops after the object file
        next(steps)
    one("os.remove", one.path(replays.EXTENSION, "lock"))
    assert base_files(mount) == {}


def test_an_unknown_cache_is_published_at_its_jobs_success_once_nothing_has_it_open(mount, job_of):
    one, two, three = (job_of(mount, name, 20001 + number)
                       for number, name in enumerate(("one", "two", "three")))
    one("os.makedirs", one.path("mine/a/b"), exist_ok=True)
    one.write("mine/a/b/whole", b"whole")
    held = one("hold", one.path("mine/open"), os.O_CREAT | os.O_WRONLY)
    assert base_files(mount) == {}
    assert not two.exists("mine")
    mount.end_job("one")
    assert base_files(mount) == {"mine/a/b/whole": b"whole"}
    assert two.read("mine/a/b/whole") == b"whole"
    one("release", held)
    three("os.makedirs", three.path("other"), exist_ok=True)
    three.write("other/x", b"x")
    mount.end_job("three", "failure")
    assert not mount.base("other").exists()


def test_every_profiles_name_is_in_the_mount_from_the_start(mount, two_jobs):
    names = mount.status()["profiles"]
    assert {"triton", "pip", "vllm"} <= set(names)
    for name in names:
        assert two_jobs[0].exists(name), name
        assert two_jobs[0].listdir(name) == []


OWN = """name = "mine"
variable = "MINE_DIR"
evidence = "read"
[[entry]]
path = "*"
files = [""]
renamed = true
"""


def test_a_sites_own_profile_defines_a_family(own_profiles, mount_store, store, job_of):
    (own_profiles / "mine.toml").write_text(OWN)
    mount = mount_store(store)
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    one.write("mine/.tmp", b"x")
    one("os.rename", one.path("mine/.tmp"), one.path("mine/k"))
    assert two.read("mine/k") == b"x"


def test_a_bad_profile_is_refused_and_the_others_are_used(own_profiles, mount_store, store):
    (own_profiles / "bad.toml").write_text('name = "bad"\nevidence = "sure"\n')
    (own_profiles / "mine.toml").write_text(OWN)
    mount = mount_store(store)
    reason = "/etc/cacheshim/profiles.d/bad.toml:2: evidence: must be one of run, read, doc, guess"
    assert reason in mount.log.read_text()
    assert "mine" in mount.status()["profiles"] and "bad" not in mount.status()["profiles"]


def profile_command(*words):
    return mounts.run(mounts.PROGRAM, "profile", *words)


def test_profile_list_and_show(own_profiles):
    (own_profiles / "mine.toml").write_text(OWN)
    (own_profiles / "bad.toml").write_text("name = 7\n")
    listed = profile_command("list")
    assert listed.returncode == 0
    rows = {line.split()[0]: line for line in listed.stdout.splitlines()}
    assert "/etc/cacheshim/profiles.d/mine.toml" in rows["mine"]
    assert "TRITON_CACHE_DIR" in rows["triton"] and "~/.triton/cache" in rows["triton"]
    assert "bad.toml:1: name: must be a string; going on without" in listed.stderr
    shown = profile_command("show", "mine").stdout
    assert "MINE_DIR" in shown and "when renamed there" in shown
    assert profile_command("show", "nobody").returncode == 1


def test_profile_list_of_a_mount(own_profiles, mount_store, store):
    (own_profiles / "mine.toml").write_text(OWN)
    mount = mount_store(store)
    (own_profiles / "later.toml").write_text(OWN.replace("mine", "later"))
    names = [line.split()[0] for line in mount.cli("profile", "list").stdout.splitlines()[1:]]
    assert names == mount.status()["profiles"] and "mine" in names and "later" not in names


def test_profile_check(scratch):
    good, bad = scratch / "good.toml", scratch / "bad.toml"
    good.write_text(OWN)
    bad.write_text(OWN + "[class]\nsecret = []\n")
    assert profile_command("check", good).returncode == 0
    checked = profile_command("check", good, bad)
    assert checked.returncode == 1
    assert f"{bad}:9: unknown key 'class.secret'" in checked.stderr
    assert "'mine' is good" in checked.stdout
    assert profile_command("check", scratch / "none.toml").returncode == 1
