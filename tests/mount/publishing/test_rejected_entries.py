# SPDX-License-Identifier: Apache-2.0
"""Entries of the base that jobs open and then build again: counted, reported, and replaced by the second job's
build."""

import json
import os
import time

import pytest
from direct import warm

KEY = "triton/KEY"
GROUP = f"{KEY}/__grp__kernel.json"
BAD = {"kernel.cubin": b"", "kernel.ttir": b"half of"}
FIRST, ONE, TWO, THREE = 20000, 20001, 20002, 20003


def good(text):
    return {"kernel.cubin": text.encode() * 100, "kernel.ttir": text.encode()}


def reject(job, files):
    """Does what Triton does with an entry that it cannot use: opens the group file, and compiles the kernel again."""
    job.read(GROUP)
    job.put_group("KEY", files)


def counts(mount):
    stats = mount.stats()
    return stats["entries_rejected"], stats["rebuilds_equal"], stats["entries_replaced"]


def explain(mount, job):
    return json.loads(mount.cli("explain", GROUP, "--json", "--job", job).stdout)


@pytest.fixture
def bad(mount, job_of):
    """A mount whose base has an unusable entry, which user FIRST has published."""
    job_of(mount, "first", FIRST).put_group("KEY", BAD)
    assert mount.base(KEY, "kernel.ttir").read_bytes() == b"half of"
    return mount


def test_the_second_job_that_rejects_an_entry_replaces_it(bad, job_of):
    reader = job_of(bad, "reader", THREE)
    assert reader.read(f"{KEY}/kernel.ttir") == b"half of"
    held = reader("hold", reader.path(KEY, "kernel.ttir"))
    reject(job_of(bad, "one", ONE), good("one"))
    assert counts(bad) == (1, 0, 0)
    assert bad.base(KEY, "kernel.ttir").read_bytes() == b"half of"
    reject(job_of(bad, "two", TWO), good("two"))
    assert counts(bad) == (2, 0, 1)
    assert reader.read(f"{KEY}/kernel.ttir") == b"two", "a view is told before the call returns"
    assert reader("os.pread", held, 100, 0) == b"half of", "what is open can be read on"
    third = job_of(bad, "three", THREE)
    assert {name: third.read(f"{KEY}/{name}") for name in good("two")} == good("two")
    assert bad.layer_names("two") == [] and bad.layer_names("three") == []
    assert counts(bad) == (2, 0, 1)
    assert bad.cli("verify").returncode == 0


def test_an_entry_is_replaced_once_a_day(bad, job_of):
    for number, uid in enumerate([ONE, TWO, ONE, TWO, THREE]):
        reject(job_of(bad, f"job{number}", uid), good(f"build {number}"))
    assert counts(bad) == (5, 0, 1)
    assert bad.base(KEY, "kernel.ttir").read_bytes() == b"build 1"


def test_rejections_are_explained_and_reported(bad, job_of, program):
    assert "rejected" not in explain(bad, "first")
    assert bad.status()["rejected"] == []
    one = job_of(bad, "one", ONE)
    reject(one, good("one"))
    rejected = explain(bad, "one")["rejected"]
    assert (rejected["times"], rejected["jobs"], rejected["equal"]) == (1, 1, 0)
    assert rejected["replaced"] is None
    assert "1 time by 1 job" in bad.cli("explain", GROUP, "--job", "one").stdout
    assert [entry["entry"] for entry in bad.status()["rejected"]] == [KEY]
    assert f"{KEY}, 1 time by 1 job" in bad.cli("status").stdout
    report = json.loads(bad.cli("doctor", "--json", check=False).stdout)
    found = [check for check in report["checks"] if check["check"] == "rejected entries"]
    assert [check["health"] for check in found] == ["warning"] and KEY in found[0]["what"]
    reject(job_of(bad, "two", TWO), good("two"))
    assert explain(bad, "two")["rejected"]["replaced"] > 0
    assert bad.status()["rejected"] == []


def test_jobs_that_only_write_reject_nothing(bad, job_of):
    for number, uid in enumerate([ONE, TWO, THREE]):
        job_of(bad, f"job{number}", uid).put_group("KEY", good(f"build {number}"))
    assert counts(bad) == (0, 0, 0)
    assert bad.base(KEY, "kernel.ttir").read_bytes() == b"half of"


def test_equal_builds_replace_nothing(bad, job_of):
    before = os.stat(bad.base(KEY)).st_ino
    for number, uid in enumerate([ONE, TWO, THREE]):
        reject(job_of(bad, f"job{number}", uid), BAD)
    assert counts(bad) == (0, 3, 0)
    assert os.stat(bad.base(KEY)).st_ino == before
    assert bad.status()["rejected"][0]["equal"] == 3


def test_one_user_with_many_jobs_does_not_replace_what_another_has_published(bad, job_of):
    for number in range(6):
        reject(job_of(bad, f"evil{number}", ONE), good("evil"))
    assert counts(bad) == (6, 0, 0)
    assert bad.base(KEY, "kernel.ttir").read_bytes() == b"half of"


def test_a_user_replaces_what_it_has_published_itself(bad, job_of):
    reject(job_of(bad, "one", FIRST), good("one"))
    assert counts(bad) == (1, 0, 0)
    reject(job_of(bad, "two", FIRST), good("two"))
    assert counts(bad) == (2, 0, 1)
    assert bad.base(KEY, "kernel.ttir").read_bytes() == b"two"


def test_jobs_of_one_named_user_are_enough(mount_allowing, job_of):
    mount = mount_allowing(f"{{ users = [{FIRST}, {ONE}] }}")
    job_of(mount, "first", FIRST).put_group("KEY", BAD)
    for number, uid in enumerate([TWO, TWO, ONE]):
        reject(job_of(mount, f"job{number}", uid), good(f"build {number}"))
    assert counts(mount) == (3, 0, 0), "those that may not publish count for nothing"
    reject(job_of(mount, "last", ONE), good("last"))
    assert counts(mount) == (4, 0, 1)
    assert mount.base(KEY, "kernel.ttir").read_bytes() == b"last"


@pytest.mark.parametrize("policy", ["never", "end"])
def test_jobs_that_publish_later_or_never_are_counted_alone(bad, job_of, policy):
    for number, uid in enumerate([ONE, TWO, THREE]):
        reject(job_of(bad, f"job{number}", uid, env={"CACHESHIM_PUBLISH": policy}), good("x"))
    for number in range(3):
        bad.end_job(f"job{number}")
    assert counts(bad) == (3, 0, 0)
    assert bad.base(KEY, "kernel.ttir").read_bytes() == b"half of"


def test_cold_builders_at_once_reject_nothing(mount, job_of):
    jobs = [job_of(mount, f"job{number}", 20001 + number) for number in range(3)]
    for job in jobs:
        job("os.makedirs", job.path(KEY))
        assert not job.exists(f"{KEY}/kernel.cubin")
    jobs[0].put_group("KEY", good("first"))
    for job in jobs[1:]:
        job.put_group("KEY", good(job.job))
    assert counts(mount) == (0, 0, 0)
    assert mount.base(KEY, "kernel.ttir").read_bytes() == b"first"


def test_a_rank_that_reads_while_another_one_of_its_job_builds_rejects_nothing(mount, job_of):
    """A builder begins its entry, another process of its job reads the published entry, and then the builder completes
    its own entry. This is not a rejection."""
    for name, uid in (("two", TWO), ("three", THREE)):
        builder, reader = job_of(mount, name, uid), job_of(mount, name, uid)
        builder("os.makedirs", builder.path(KEY, "tmp.pid_1_x"), exist_ok=True)
        if name == "two":
            job_of(mount, "first", FIRST).put_group("KEY", good("first"))
        assert reader.read(f"{KEY}/kernel.ttir") == b"first"
        reader.read(GROUP)
        reader.put("KEY", f"launcher-of-{name}.so", b"an addition")
        builder.put_group("KEY", good(name))
    assert counts(mount) == (0, 0, 0)
    assert mount.base(KEY, "kernel.ttir").read_bytes() == b"first"


def test_a_job_that_adds_to_an_entry_rejects_nothing(bad, job_of):
    for number, uid in enumerate([ONE, TWO, THREE]):
        job = job_of(bad, f"job{number}", uid)
        job.read(GROUP)
        job.put("KEY", f"launcher{number}.so", b"launcher")
        job.put_group("KEY", {f"other{number}.cubin": b"x"}, kernel=f"other{number}")
    assert counts(bad) == (0, 0, 0)


def test_a_job_that_removes_an_entry_before_it_builds_it_rejects_it(bad, job_of):
    for name, uid in (("one", ONE), ("two", TWO)):
        job = job_of(bad, name, uid)
        job.read(GROUP)
        job("shutil.rmtree", job.path(KEY))
        job.put_group("KEY", good(name))
    assert counts(bad) == (2, 0, 1)
    assert bad.base(KEY, "kernel.ttir").read_bytes() == b"two"


def test_rejections_by_preloaded_jobs_are_detected_from_the_second_on(bad, shimmed_job_of):
    """The daemon does not see which files a preloaded process opens. After the first rebuild of an entry, the daemon
    allows no direct answers for this entry, so that processes open it through the mount."""
    for number, uid in enumerate([ONE, TWO, THREE]):
        assert counts(bad) == (max(number - 1, 0), 0, 0)
        before = bad.stats()["hits_direct"]
        reject(warm(bad, shimmed_job_of(bad, f"job{number}", uid)), good(f"build {number}"))
        assert (bad.stats()["hits_direct"] > before) == (number == 0)
    assert counts(bad) == (2, 0, 1)
    fourth = shimmed_job_of(bad, "fourth", ONE)
    assert fourth.read(f"{KEY}/kernel.ttir") == b"build 2"


def test_an_entry_that_an_interrupted_process_has_left_is_replaced(store, mount_store, job_of):
    (store / KEY).mkdir(parents=True)
    torn = store / KEY / "kernel.ttir"
    torn.write_bytes(b"half of")
    os.utime(torn, (time.time() - 3600,) * 2)
    mount = mount_store(store)
    for name, uid in (("one", ONE), ("two", TWO)):
        job = job_of(mount, name, uid)
        assert not job.exists(GROUP)
        job.put_group("KEY", good(name))
    assert counts(mount) == (2, 0, 1)
    assert job_of(mount, "three", THREE).read(f"{KEY}/kernel.ttir") == b"two"


def test_pages_that_pip_fetches_again_are_not_rejected(mount, job_of):
    page = "pip/http/a/b/c/d/e/HASH"
    for number, uid in enumerate([FIRST, ONE, TWO, THREE]):
        job = job_of(mount, f"job{number}", uid)
        if number == 0:
            job("os.makedirs", job.path(os.path.dirname(page)), exist_ok=True)
        else:
            assert job.read(page) == b"page 0"
        job.write(f"{page}.x.tmp", b"page %d" % number)
        job("os.replace", job.path(f"{page}.x.tmp"), job.path(page))
        assert job.read(page) == b"page %d" % number
    assert counts(mount) == (0, 0, 0)
