# SPDX-License-Identifier: Apache-2.0
"""If another user has already used a job's id, the job's owner works under another id, and gets a one-line message. The
other user gets nothing but the id."""

import json
import os
import shutil
import uuid

import cgroups
import pytest
from jobs import as_user

OWNER, SQUATTER, ROOT = 20001, 20002, 0
ID = "4711"
OWN = f"uid-{OWNER}.{ID}"
KEY = "triton/k.so"


@pytest.fixture
def squatted(mount, job_of):
    """A process of SQUATTER that has used the job ID first, and continues to run."""
    squatter = job_of(mount, ID, SQUATTER)
    squatter.write(KEY, b"of a stranger")
    return squatter


def log_of(mount):
    return (mount.run_directory() / "log").read_text()


def assert_own_view(process, squatter):
    """Asserts that the process has its own view, in which every call succeeds."""
    assert not process.exists(KEY)
    process.write(KEY, b"mine")
    process("os.makedirs", process.path("triton/KEY/deep"), exist_ok=True)
    assert process.read(KEY) == b"mine" and {"KEY", "k.so"} <= set(process.listdir("triton"))
    assert process("os.stat", process.path(KEY)).st_uid == process.uid
    assert squatter.read(KEY) == b"of a stranger" and "KEY" not in squatter.listdir("triton")


@pytest.mark.parametrize("variable", ["CACHESHIM_JOB", "SLURM_JOB_ID", "CI_JOB_ID", "PBS_JOBID", "BUILD_TAG"])
def test_the_owner_works_under_another_id(mount, squatted, job_of, variable):
    owner = job_of(mount, None, OWNER, env={variable: ID})
    assert owner("os.readlink", owner.path("triton")) == f".jobs/{OWN}/triton"
    assert_own_view(owner, squatted)
    assert f"job '{ID}' belongs to uid {SQUATTER}" in log_of(mount) and OWN in log_of(mount)
    listed = {job["job"]: job["uid"] for job in json.loads(mount.cli("job", "list", "--json").stdout)}
    assert listed == {ID: SQUATTER, OWN: OWNER}


def test_the_owners_entries_are_published(mount, squatted, job_of):
    job_of(mount, ID, OWNER).put_group("KEY", {"k.cubin": b"x"})
    assert (mount.store / "triton/KEY/k.cubin").read_bytes() == b"x"
    assert squatted.read("triton/KEY/k.cubin") == b"x"


def test_the_path_of_the_named_jobs_view_leads_the_owner_to_its_own(mount, squatted, job_of):
    """The kernel caches the name of the view for the squatter, who keeps using the view."""
    owner = job_of(mount, ID, OWNER)
    for number in range(5):
        assert squatted("os.listdir", squatted.view("triton")) == ["k.so"]
        owner("os.makedirs", owner.view("triton/KEY"), exist_ok=True)
        owner("write_file", owner.view(f"triton/KEY/{number}"), b"mine")
        assert len(owner("os.listdir", owner.view("triton/KEY"))) == number + 1
    assert squatted.listdir("triton") == ["k.so"]


def test_others_cannot_use_the_path_of_the_view(mount, squatted, job_of):
    other = job_of(mount, "other", OWNER)
    for path in (squatted.view("triton"), squatted.view("triton/k.so")):
        with pytest.raises(PermissionError):
            other("os.stat", path)


def test_the_library_reports_a_squatted_job_in_one_line(mount, squatted, library, scratch):
    copy = shutil.copy(library, scratch / "lib.so")
    env = {"LD_PRELOAD": str(copy), "CACHESHIM_MOUNT": str(mount.path)}
    script = f"mkdir {mount.path}/triton/KEY && echo x > {mount.path}/triton/KEY/x && cat {mount.path}/triton/KEY/x"
    ran = as_user(OWNER, ["/bin/sh", "-c", script], job=ID, env=env)
    assert (ran.returncode, ran.stdout) == (0, "x\n"), ran.stderr
    assert ran.stderr == f"cacheshim: job '{ID}' belongs to uid {SQUATTER}; using job '{OWN}' instead\n"


def test_the_library_serves_the_owner_directly(mount_store, store, job_of, shimmed_job_of):
    (store / "triton/BASE").mkdir(parents=True)
    (store / "triton/BASE/file").write_bytes(b"of the base")
    mount = mount_store(store)
    squatter = job_of(mount, ID, SQUATTER)
    squatter.write(KEY, b"of a stranger")
    owner = shimmed_job_of(mount, ID, OWNER)
    assert_own_view(owner, squatter)
    for _ in range(40):
        assert owner.read("triton/BASE/file") == b"of the base"
    assert mount.job(OWN)["direct_opens"] > 0


def test_the_library_leaves_the_view_when_another_user_has_come_first(mount, shimmed_job_of, job_of):
    owner = shimmed_job_of(mount, ID, OWNER)  # its environment names the job, but it has not used the job yet
    squatter = job_of(mount, ID, SQUATTER)
    squatter.write(KEY, b"of a stranger")
    assert squatter("os.listdir", squatter.view("triton")) == ["k.so"]
    assert_own_view(owner, squatter)


def test_run_reports_a_squatted_job_and_uses_the_owners_job(mount, squatted, anybodys_program):
    script = f"echo x > {mount.path}/triton/loose && cat {mount.path}/triton/loose"
    ran = as_user(OWNER, [anybodys_program, "run", "--mount", mount.path, "--job", ID, "--", "/bin/sh", "-c", script])
    assert (ran.returncode, ran.stdout) == (0, "x\n"), ran.stderr
    assert ran.stderr == f"cacheshim: job '{ID}' belongs to uid {SQUATTER}; using job '{OWN}' instead\n"
    assert mount.job(OWN)["outcome"] == "success" and mount.job(ID)["state"] == "active"
    assert (mount.store / "triton/loose").read_text() == "x\n"


def test_the_job_commands_reach_the_owners_job(mount, squatted, job_of, anybodys_program):
    def of_owner(*words):
        return as_user(OWNER, [anybodys_program, "job", *words, "--mount", mount.path])

    started = of_owner("start", ID)
    assert (started.returncode, started.stdout) == (0, f"job {OWN} started\n"), started.stderr
    assert started.stderr.count("\n") == 1 and f"belongs to uid {SQUATTER}" in started.stderr
    job_of(mount, ID, OWNER).write("triton/loose", b"x")
    assert OWN in of_owner("show", ID).stdout
    assert of_owner("end", ID, "--success").returncode == 0
    assert mount.job(OWN)["outcome"] == "success" and mount.job(ID)["state"] == "active"
    refused = of_owner("end", ID, "--success")
    assert refused.returncode == 1 and squatted.read(KEY) == b"of a stranger"


# ---- shared jobs

@pytest.mark.parametrize("uid", [OWNER, ROOT])
def test_a_schedulers_variable_does_not_enter_a_strangers_shared_job(mount, job_of, anybodys_program, uid):
    as_user(SQUATTER, [anybodys_program, "job", "start", ID, "--shared-uids", "--mount", mount.path]).check_returncode()
    squatter = job_of(mount, ID, SQUATTER)
    squatter.write(KEY, b"of a stranger")
    owner = job_of(mount, None, uid, env={"SLURM_JOB_ID": ID})
    assert_own_view(owner, squatter)
    ran = as_user(OWNER, [anybodys_program, "run", "--mount", mount.path, "--", "/bin/cat", mount.path / KEY],
                  env={"SLURM_JOB_ID": ID})
    assert "of a stranger" not in ran.stdout and f"using job '{OWN}' instead" in ran.stderr
    member = job_of(mount, ID, uid)
    assert member.read(KEY) == b"of a stranger", "CACHESHIM_JOB names the job by choice"


def test_a_job_that_root_shares_admits_everybody_who_names_it(mount, job_of):
    mount.cli("job", "start", ID, "--shared-uids")
    one, two = (job_of(mount, None, uid, env={"SLURM_JOB_ID": ID}) for uid in (OWNER, SQUATTER))
    one.write(KEY, b"of one")
    assert two.read(KEY) == b"of one"


# ---- root names the user

def test_root_reserves_an_id_for_its_user(mount, job_of):
    started = mount.cli("job", "start", ID, "--uid", str(OWNER))
    assert started.stdout == f"job {ID} started\n"
    squatter = job_of(mount, ID, SQUATTER)
    squatter.write(KEY, b"of a stranger")
    assert squatter("os.readlink", squatter.path("triton")) == f".jobs/uid-{SQUATTER}.{ID}/triton"
    owner = job_of(mount, ID, OWNER)
    assert owner("os.readlink", owner.path("triton")) == f".jobs/{ID}/triton"
    assert_own_view(owner, squatter)
    assert mount.job(ID)["uid"] == OWNER


def test_root_reserves_an_id_that_root_has_used(mount, job_of):
    mount.cli("job", "start", ID)
    root = job_of(mount, ID, ROOT)
    root.write("triton/of-root", b"x")
    assert root("os.stat", root.view("triton/of-root")).st_uid == 0
    mount.cli("job", "start", ID, "--uid", str(OWNER))
    owner = job_of(mount, ID, OWNER)
    assert owner("os.stat", owner.view("triton/of-root")).st_uid == OWNER
    owner.write("triton/of-root", b"mine")
    with pytest.raises(PermissionError):
        root("read_file", root.view("triton/of-root"))


def test_root_reserves_an_id_that_is_squatted(mount, squatted, job_of):
    started = mount.cli("job", "start", ID, "--uid", str(OWNER))
    assert started.stdout == f"job {OWN} started\n" and f"belongs to uid {SQUATTER}" in started.stderr
    owner = job_of(mount, ID, OWNER)
    assert_own_view(owner, squatted)
    assert mount.job(OWN)["uid"] == OWNER


@pytest.mark.parametrize("uid", ["-1", "4294967295", "alice"])
def test_only_a_uid_can_be_named(mount, uid):
    refused = mount.cli("job", "start", ID, f"--uid={uid}", check=False)
    assert refused.returncode == 2 and refused.stderr.startswith("cacheshim: ")


def test_only_root_names_another_user(mount, anybodys_program):
    argv = [anybodys_program, "job", "start", ID, "--mount", mount.path, "--uid"]
    refused = as_user(SQUATTER, [*argv, str(OWNER)])
    assert refused.returncode == 1 and "only root" in refused.stderr
    assert as_user(SQUATTER, [*argv, str(SQUATTER)]).returncode == 0
    assert mount.job(ID)["uid"] == SQUATTER


# ---- ids of users

@pytest.mark.parametrize("job", [f"uid-{OWNER}", OWN, f"uid-0{OWNER}", "uid-0", "uid-0.4711"])
def test_an_id_of_a_user_belongs_to_nobody_else(mount, job_of, anybodys_program, job):
    squatter = job_of(mount, job, SQUATTER)
    assert squatter("os.readlink", squatter.path("triton")) == f".jobs/uid-{SQUATTER}/triton"
    for call in ("os.listdir", "os.mkdir", "os.stat"):
        with pytest.raises((PermissionError, FileNotFoundError)):
            squatter(call, str(mount.path / ".jobs" / job))
    for words in (["job", "start", job], ["job", "start", job, "--shared-uids"],
                  ["run", "--job", job, "--shared-uids"]):
        command = ["--", "true"] if words[0] == "run" else []
        tried = as_user(SQUATTER, [anybodys_program, *words, "--mount", mount.path, *command])
        assert "belongs to another user" in tried.stderr
    assert job not in os.listdir(mount.path / ".jobs")


def test_root_begins_a_users_job_for_this_user_alone(mount, job_of):
    mount.cli("job", "start", f"uid-{OWNER}")
    squatter = job_of(mount, f"uid-{OWNER}", SQUATTER)
    with pytest.raises(PermissionError):
        squatter("os.listdir", str(mount.path / ".jobs" / f"uid-{OWNER}/triton"))
    owner = job_of(mount, None, OWNER)
    owner.write(KEY, b"mine")
    assert mount.job(f"uid-{OWNER}")["uid"] == OWNER


# ---- SLURM's cgroups

@pytest.fixture
def slurm(mount):
    """slurm(process) puts the process into the cgroup that SLURM makes for job ID."""
    top = cgroups.find_tree()
    if top is None:
        pytest.skip("no cgroup tree that can be written to")
    with cgroups.directories(top, f"slurm_{uuid.uuid4()}") as make:
        make(f"uid_{SQUATTER}")
        yield lambda process, owner=0: cgroups.put_into(make(f"uid_{process.uid}/job_{ID}", owner), process)


def test_a_number_without_slurms_proof_is_not_slurms_job(mount, job_of, slurm):
    squatter = job_of(mount, None, SQUATTER, env={"SLURM_JOB_ID": ID})
    squatter.write(KEY, b"of a stranger")
    named = job_of(mount, ID, SQUATTER)
    assert squatter("os.readlink", squatter.path("triton")) == f".jobs/uid-{SQUATTER}.{ID}/triton"
    assert named.read(KEY) == b"of a stranger"
    owner = job_of(mount, None, OWNER, env={"SLURM_JOB_ID": ID})
    slurm(owner)
    assert owner("os.readlink", owner.path("triton")) == f".jobs/{ID}/triton"
    assert_own_view(owner, squatter)


def test_a_cgroup_that_a_user_has_made_proves_no_job(mount, job_of, slurm):
    squatter = job_of(mount, None, SQUATTER)
    slurm(squatter, owner=SQUATTER)
    assert squatter("os.readlink", squatter.path("triton")) == f".jobs/uid-{SQUATTER}.{ID}/triton"


def test_without_proof_no_request_begins_slurms_job(mount, slurm, job_of, anybodys_program):
    for words in (["job", "start", ID, "--shared-uids"], ["run", "--job", ID]):
        command = ["--", "true"] if words[0] == "run" else []
        tried = as_user(SQUATTER, [anybodys_program, *words, "--mount", mount.path, *command])
        assert tried.returncode == 0 and tried.stderr.count("\n") == 1 and "SLURM" in tried.stderr
    squatter = job_of(mount, "other", SQUATTER)
    with pytest.raises((PermissionError, FileNotFoundError)):
        squatter("os.makedirs", str(mount.path / ".jobs" / ID / "triton"))
    assert ID not in os.listdir(mount.path / ".jobs")


def test_root_names_the_user_without_slurms_proof(mount, job_of, slurm):
    mount.cli("job", "start", ID, "--uid", str(OWNER))
    owner = job_of(mount, ID, OWNER)
    assert owner("os.readlink", owner.path("triton")) == f".jobs/{ID}/triton"


def test_names_that_are_no_numbers_need_no_proof(mount, job_of, slurm):
    process = job_of(mount, "nightly-4711", OWNER)
    assert process("os.readlink", process.path("triton")) == ".jobs/nightly-4711/triton"
