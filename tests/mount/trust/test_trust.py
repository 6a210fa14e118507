# SPDX-License-Identifier: Apache-2.0
"""[publish] allow: which users may publish. The kernel identifies the writers of a layer."""

import os
import subprocess
import uuid

import cgroups
import jobs
import mounts
import pytest
from cgroups import put_into
from trust import GROUP, KERNEL, STRANGER, TRUSTED, audited, explain, is_published, show


def test_only_named_users_publish_and_all_read(mount, job_of):
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    stranger.put_group("THEIRS", KERNEL)
    whole = trusted.put_group("KEY", KERNEL)
    assert is_published(mount) and not is_published(mount, "THEIRS")
    assert {name: stranger.read(f"triton/KEY/{name}") for name in whole} == whole
    assert stranger.read("triton/THEIRS/k.cubin") == KERNEL["k.cubin"]
    assert not trusted.exists("triton/THEIRS")
    mount.end_job("two")
    assert not is_published(mount, "THEIRS")
    assert audited(mount) == [TRUSTED]


def test_a_refusal_is_counted_once_per_entry_and_explained(mount, job_of):
    stranger = job_of(mount, "two", STRANGER)
    for key in ("A", "B"):
        stranger.put_group(key, KERNEL)
    assert mount.stats()["publish_refused"] == 2
    answer = explain(mount, "triton/A/k.cubin", "two")
    why = f"uid {STRANGER}, whom [publish] allow does not name, has written to its layer"
    assert answer["from"] == "layer"
    assert answer["not_published"] == f"the job may not publish: {why}"
    assert show(mount, "two")["refused"] == why
    text = mount.cli("job", "show", "two").stdout
    assert f"no: {why}" in text
    published = mount.cli("job", "publish", "two").stdout
    assert "2 entries kept back: the job may not publish" in published
    stranger.write("triton/loose", b"x")
    ended = mount.end_job("two").stdout
    assert "3 entries kept back" in ended
    assert mount.stats()["publish_refused"] == 3
    assert mount.stats()["entries_published"] == 0


def test_status_reports_who_may_publish(mount_allowing):
    everybody = mount_allowing(None)
    assert everybody.status()["publishers"] == "every local user"
    assert "every local user may publish" in everybody.cli("status").stdout
    some = mount_allowing(f'{{ users = ["root", {TRUSTED}], groups = ["daemon"], jobs = ["47*"] }}')
    assert some.status()["publishers"] == \
        f"users root, {TRUSTED}; groups daemon; jobs in cgroups 47*"
    assert "every local user" not in some.cli("status").stdout
    nobody = mount_allowing("{}")
    assert nobody.status()["publishers"] == "nobody"


def test_an_empty_table_lets_nobody_publish(mount_allowing, job_of):
    mount = mount_allowing("{}")
    job_of(mount, "one", TRUSTED).put_group("KEY", KERNEL)
    assert not is_published(mount)


def test_root_must_be_named_as_well(mount_allowing, job_of):
    """Root is no exception, because jobs in containers often run as root."""
    mount = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    job_of(mount, "root", 0).put_group("KEY", KERNEL)
    assert not is_published(mount)
    mount.unmount()
    mount = mount_allowing('{ users = ["root"] }')
    job_of(mount, "other", 0).put_group("OTHER", KERNEL)
    assert is_published(mount, "OTHER")


@pytest.fixture
def process_of(agent, mount_allowing):
    """process_of(mount, job, uid, gid, groups) starts a process whose primary group is `gid` and whose supplementary
    groups are `groups`."""
    started = []

    def start(mount, job, uid, gid, groups):
        argv = ["setpriv", f"--reuid={uid}", f"--regid={gid}",
                f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups", "--",
                jobs.PYTHON, "-I", str(agent)]
        one = jobs.Job.__new__(jobs.Job)
        one.mount, one.uid, one.job = mount.path, uid, job
        one._child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      env=jobs.environment(job), umask=0o022, cwd="/")
        started.append(one)
        return one

    yield start
    for one in started:
        one.close()


@pytest.mark.parametrize("gid, groups, may", [
    (GROUP, [], True), (30000, [30001, GROUP], True), (30000, [30001], False), (30000, [], False)])
def test_groups_count_with_the_supplementary_ones(mount_allowing, process_of, gid, groups, may):
    mount = mount_allowing(f"{{ groups = [{GROUP}] }}")
    process_of(mount, "one", STRANGER, gid, groups).put_group("KEY", KERNEL)
    assert is_published(mount) == may


def test_a_processs_own_claims_do_not_count(mount, job_of):
    for number, name in enumerate(("uid-20001", "root", "4711", f"job_{TRUSTED}")):
        lying = job_of(mount, name, STRANGER + number, env={
            "CACHESHIM_PUBLISH": "complete", "USER": "root", "SLURM_JOB_ID": "4711",
            "SLURM_JOB_UID": str(TRUSTED)})
        lying.put_group(f"KEY{number}", KERNEL)
        assert not is_published(mount, f"KEY{number}")


@pytest.mark.parametrize("policy", ["never", "end"])
def test_a_job_can_only_lower_its_policy(mount, job_of, policy):
    trusted = job_of(mount, "one", TRUSTED, env={"CACHESHIM_PUBLISH": policy})
    trusted.put_group("KEY", KERNEL)
    assert not is_published(mount)
    mount.end_job("one")
    assert is_published(mount) == (policy == "end")
    assert mount.stats()["publish_refused"] == 0


def test_an_entry_with_a_closed_file_stays_with_its_job(mount, job_of):
    """The service account would own the published file, so even the job that created it could no longer read it."""
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    trusted.put("KEY", "k.cubin", b"secret")
    trusted("os.chmod", trusted.path("triton/KEY/k.cubin"), 0o600)
    trusted.put_group("KEY", {"k.json": b"{}"})
    assert not mount.base("triton/KEY").exists()
    assert trusted.read("triton/KEY/k.cubin") == b"secret"
    with pytest.raises(FileNotFoundError):
        stranger.read("triton/KEY/k.cubin")
    trusted("os.chmod", trusted.path("triton/KEY/k.cubin"), 0o644)
    mount.end_job("one")
    assert stranger.read("triton/KEY/k.cubin") == b"secret"


def test_a_job_whose_umask_closes_its_files_uses_them_and_leaves_the_entry_to_others(mount, job_of):
    one, again = job_of(mount, "one", TRUSTED), job_of(mount, "again", TRUSTED)
    one("os.umask", 0o077)
    for job in (one, again):
        whole = job.put_group("KEY", KERNEL)
        assert {name: job.read(f"triton/KEY/{name}") for name in whole} == whole
        assert is_published(mount) == (job is again)
    assert explain(mount, "triton/KEY/k.cubin", "one")["from"] == "layer"
    stranger = job_of(mount, "two", STRANGER)
    assert {name: stranger.read(f"triton/KEY/{name}") for name in whole} == whole
    assert mount.stats()["publish_refused"] == 1


def test_the_configuration_can_open_what_a_umask_closes(mount_store, store, scratch, job_of):
    config = scratch / "open.toml"
    config.write_text("[publish]\nopen_files = true\n")
    mount = mount_store(store, "--config", config)
    one = job_of(mount, "one", TRUSTED)
    one("os.umask", 0o077)
    whole = one.put_group("KEY", KERNEL)
    for job in (one, job_of(mount, "two", STRANGER)):
        assert {name: job.read(f"triton/KEY/{name}") for name in whole} == whole
    assert {file.stat().st_mode & 0o777 for file in mount.base("triton/KEY").iterdir()} == {0o644}


# ---- jobs identified by cgroups

@pytest.fixture
def cgroup():
    """cgroup("a/job_1") creates directories of the cgroup tree, and returns the last one's cgroup.procs."""
    top = cgroups.find_tree()
    if top is None:
        pytest.skip("no cgroup tree that can be written to")
    with cgroups.directories(top, f"cacheshim-{uuid.uuid4()}") as make:
        yield make


@pytest.mark.parametrize("path, owner, may", [
    ("uid_20002/job_4711/step_0", 0, True),
    ("job_4799", 0, True),
    ("job_4800", 0, False),
    ("job_4711x", 0, False),
    ("user-20002.slice/job_4711", STRANGER, False)])
def test_a_slurm_job_is_proved_by_its_cgroup(mount_allowing, job_of, cgroup, path, owner, may):
    mount = mount_allowing('{ jobs = ["47[0-9][0-9]"] }')
    job = job_of(mount, "any", STRANGER)
    put_into(cgroup(path, owner), job)
    job.put_group("KEY", KERNEL)
    assert is_published(mount) == may


def test_a_cgroup_below_a_users_own_proves_nothing(mount_allowing, job_of, cgroup):
    mount = mount_allowing('{ jobs = ["*"] }')
    job = job_of(mount, "any", STRANGER)
    procs = cgroup("user.slice/job_4711")
    os.chown(procs.parent.parent, STRANGER, STRANGER)
    put_into(procs, job)
    job.put_group("KEY", KERNEL)
    assert not is_published(mount)


def test_the_environment_does_not_prove_a_slurm_job(mount_allowing, job_of):
    mount = mount_allowing('{ jobs = ["*"] }')
    job_of(mount, "4711", STRANGER, env={"SLURM_JOB_ID": "4711"}).put_group("KEY", KERNEL)
    assert not is_published(mount)


@pytest.mark.parametrize("allow, reason", [
    ('{ users = ["nobody-of-this-name"] }', "publish.allow.users: this machine knows no user"),
    ('{ groups = ["nobody-of-this-name"] }', "publish.allow.groups: this machine knows no group"),
    ("{ users = [-1] }", "publish.allow.users: must be an array of users: names or ids"),
    ("{ users = [4294967295] }", "publish.allow.users: must be an array of users: names or ids"),
    ('{ users = "root" }', "publish.allow.users: must be an array of users: names or ids"),
    ("{ groups = [1.5] }", "publish.allow.groups: must be an array of groups: names or ids"),
    ('{ jobs = ["nightly"] }', "publish.allow.jobs: 'nightly' is no pattern of SLURM's job ids"),
    ("{ jobs = [4711] }", "publish.allow.jobs: must be an array of strings"),
    ("{ uids = [1] }", "unknown key 'publish.allow.uids'"),
    ('"root"', "publish.allow: must be a table")])
def test_bad_values_are_refused(store, scratch, allow, reason):
    config = scratch / "bad.toml"
    config.write_text(f"[publish]\nallow = {allow}\n")
    point = scratch / "bad"
    point.mkdir()
    result = mounts.Mount(store, point).try_mount("--config", config)
    assert result.returncode == 2
    assert f"{config}:2: {reason}" in result.stderr and result.stderr.count("\n") == 1
