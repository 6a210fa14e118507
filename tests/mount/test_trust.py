# SPDX-License-Identifier: Apache-2.0
"""[publish] allow: whose work comes into the base, by what the kernel says of who changes a layer."""

import fcntl
import json
import os
import pathlib
import stat
import subprocess
import uuid

import jobs
import mounts
import pytest

TRUSTED, STRANGER, GROUP = 20001, 20002, 21000
KERNEL = {"k.cubin": b"cubin" * 100, "k.json": b"{}"}
NAME = "stub.so"


@pytest.fixture
def mount_allowing(mount_store, store, scratch):
    """Mounts the store with this table as [publish] allow; None: without."""
    def mount(allow, more="", name=None):
        config = scratch / f"{uuid.uuid4()}.toml"
        config.write_text("" if allow is None else f"[publish]\nallow = {allow}\n{more}")
        return mount_store(store, "--config", config, name=name)
    return mount


@pytest.fixture
def mount(mount_allowing):
    return mount_allowing(f"{{ users = [{TRUSTED}] }}")


def is_published(mount, key="KEY"):
    return mount.base("triton", key).exists()


def explain(mount, path, job):
    return json.loads(mount.cli("explain", path, "--json", "--job", job).stdout)


def show(mount, job):
    return json.loads(mount.cli("job", "show", job, "--json").stdout)


def audited(mount):
    return [json.loads(line)["uid"] for log in mount.base(".cacheshim/audit").glob("*.jsonl")
            for line in log.read_text().splitlines()]


def test_only_who_is_named_publishes_and_all_read(mount, job_of):
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


def test_what_is_refused_is_counted_once_an_entry_and_explained(mount, job_of):
    stranger = job_of(mount, "two", STRANGER)
    for key in ("A", "B"):
        stranger.put_group(key, KERNEL)
    assert mount.stats()["publish_refused"] == 2
    answer = explain(mount, "triton/A/k.cubin", "two")
    why = f"uid {STRANGER} has written to its layer, whom [publish] allow does not name"
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


def test_status_says_who_may(mount_allowing):
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
    """In a container root is whoever the job is."""
    mount = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    job_of(mount, "root", 0).put_group("KEY", KERNEL)
    assert not is_published(mount)
    mount.unmount()
    mount = mount_allowing('{ users = ["root"] }')
    job_of(mount, "other", 0).put_group("OTHER", KERNEL)
    assert is_published(mount, "OTHER")


@pytest.fixture
def process_of(agent, mount_allowing):
    """A process with a group and further groups."""
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


def test_what_a_process_says_of_itself_counts_for_nothing(mount, job_of):
    for number, name in enumerate(("uid-20001", "root", "4711", f"job_{TRUSTED}")):
        lying = job_of(mount, name, STRANGER + number, env={
            "CACHESHIM_PUBLISH": "complete", "USER": "root", "SLURM_JOB_ID": "4711",
            "SLURM_JOB_UID": str(TRUSTED)})
        lying.put_group(f"KEY{number}", KERNEL)
        assert not is_published(mount, f"KEY{number}")


@pytest.mark.parametrize("policy", ["never", "end"])
def test_a_job_can_only_ask_for_less(mount, job_of, policy):
    trusted = job_of(mount, "one", TRUSTED, env={"CACHESHIM_PUBLISH": policy})
    trusted.put_group("KEY", KERNEL)
    assert not is_published(mount)
    mount.end_job("one")
    assert is_published(mount) == (policy == "end")
    assert mount.stats()["publish_refused"] == 0


def test_what_its_owner_closed_is_published_closed(mount, job_of):
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    trusted.put("KEY", "k.cubin", b"secret")
    trusted("os.chmod", trusted.path("triton/KEY/k.cubin"), 0o600)
    trusted.put_group("KEY", {"k.json": b"{}"})
    closed = mount.base("triton/KEY/k.cubin").stat()
    assert stat.S_IMODE(closed.st_mode) == 0o600 and closed.st_uid == 0
    with pytest.raises(PermissionError):
        stranger.read("triton/KEY/k.cubin")
    assert stranger.read("triton/KEY/k.json") == b"{}"


# ---- what was written by a stranger stays unpublished, whatever happens to its job

@pytest.fixture
def shared(mount, job_of):
    """A job of several users: TRUSTED, STRANGER."""
    mount.cli("job", "start", "both", "--shared-uids")
    return job_of(mount, "both", TRUSTED), job_of(mount, "both", STRANGER)


def test_a_job_of_several_users_publishes_until_a_stranger_writes(mount, shared):
    trusted, stranger = shared
    trusted.put_group("KEY", KERNEL)
    assert stranger.read("triton/KEY/k.json") == b"{}"
    trusted.put_group("READ", KERNEL)
    assert is_published(mount) and is_published(mount, "READ"), "who only reads does no harm"
    stranger.write("triton/note", b"x")
    trusted.put_group("LATER", KERNEL)
    assert not is_published(mount, "LATER")
    mount.end_job("both")
    assert not is_published(mount, "LATER")


def change_mode(job):
    job("os.chmod", job.path("triton/OPEN/k.cubin"), 0o640)


def truncate(job):
    job("os.truncate", job.path("triton/OPEN/k.cubin"), 3)


def append(job):
    job("write_file", job.path("triton/OPEN/k.cubin"), b"x", flags=os.O_WRONLY | os.O_APPEND)


CHANGES = {
    "mkdir": lambda job: job("os.mkdir", job.path("triton/new")),
    "mkdir in the root": lambda job: job("os.makedirs", job.path("another/cache")),
    "create": lambda job: job.write("triton/new", b"x"),
    "mkfifo": lambda job: job("os.mkfifo", job.path("triton/new")),
    "symlink": lambda job: job("os.symlink", "k.json", job.path("triton/OPEN/k.link")),
    "link": lambda job: job("os.link", job.path("triton/OPEN/k.json"), job.path("triton/OPEN/k2")),
    "rename": lambda job: job("os.rename", job.path("triton/OPEN/k.json"), job.path("triton/moved")),
    "unlink": lambda job: job("os.unlink", job.path("triton/OPEN/k.json")),
    "rmdir": lambda job: job("os.rmdir", job.path("triton/empty")),
    "chmod": change_mode,
    "truncate": truncate,
    "open for writing": append,
    "utimes": lambda job: job("os.utime", job.path("triton/OPEN/k.json"), (1, 1)),
    "setxattr": lambda job: job("os.setxattr", job.path("triton/OPEN/k.json"), "user.x", b"x"),
    "O_TMPFILE": lambda job: job("os.open", job.path("triton/OPEN"), os.O_TMPFILE | os.O_RDWR, 0o644),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_every_kind_of_change_counts(mount, shared, change):
    trusted, stranger = shared
    for name, data in KERNEL.items():
        trusted.put("OPEN", name, data)
    for name in KERNEL:
        trusted("os.chmod", trusted.path("triton/OPEN", name), 0o666)
    trusted("os.mkdir", trusted.path("triton/empty"))
    assert show(mount, "both")["refused"] == ""
    CHANGES[change](stranger)
    assert str(STRANGER) in show(mount, "both")["refused"]
    trusted.put("OPEN", "__grp__k.json", b"{}")
    mount.end_job("both")
    assert not is_published(mount, "OPEN")


def test_looking_changes_nothing(mount, shared):
    trusted, stranger = shared
    trusted.put("OPEN", "k.cubin", b"x")
    stranger.read("triton/OPEN/k.cubin")
    stranger.listdir("triton/OPEN")
    stranger.exists("triton/OPEN/missing")
    stranger("os.access", stranger.path("triton/OPEN/k.cubin"), os.W_OK)
    assert show(mount, "both")["refused"] == ""


def test_a_descriptor_that_is_handed_on_counts_by_who_writes(mount, agent):
    """The child has given up its user, and writes by what its parent has opened."""
    code = f"""if 1:
        import os, sys
        entry = sys.argv[1]
        os.makedirs(entry)
        fd = os.open(entry + "/k.cubin", os.O_RDWR | os.O_CREAT, 0o644)
        if os.fork() == 0:
            os.setresuid({STRANGER}, {STRANGER}, {STRANGER})
            os.write(fd, b"stranger's")
            os._exit(0)
        os.wait()
        os.close(fd)
        """
    done = subprocess.run(
        ["setpriv", f"--reuid={TRUSTED}", f"--regid={TRUSTED}", "--clear-groups",
         "--inh-caps=+setuid", "--ambient-caps=+setuid", "--", jobs.PYTHON, "-c", code,
         str(mount.path / "triton/KEY")],
        env=jobs.environment("one"), check=False, timeout=60)
    assert done.returncode == 0
    assert str(STRANGER) in show(mount, "one")["refused"]


def test_a_layer_cannot_be_renamed_or_begun_anew_into_trust(mount_allowing, mount, job_of, store):
    """As an administrator might try, by moving its folder, or by another attempt of the job."""
    stranger = job_of(mount, "two", STRANGER)
    stranger.put_group("THEIRS", KERNEL)
    mount.kill_daemon()
    mount.detach()
    layers = store / ".cacheshim/layers"
    os.rename(layers / "two", layers / f"uid-{TRUSTED}")
    record = next((layers / f"uid-{TRUSTED}").glob("*/meta.json"))
    record.write_text(record.read_text().replace('"two"', f'"uid-{TRUSTED}"')
                      .replace(str(STRANGER), str(TRUSTED), 1))
    again = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    assert again.layer_files(f"uid-{TRUSTED}")
    trusted = job_of(again, f"uid-{TRUSTED}", TRUSTED)
    trusted.put_group("MINE", KERNEL)
    again.cli("job", "publish", f"uid-{TRUSTED}")
    again.end_job(f"uid-{TRUSTED}")
    assert not is_published(again, "THEIRS") and not is_published(again, "MINE")


@pytest.mark.parametrize("allow_again", ["{ users = [20001, 20002] }", None, "{ users = [20001] }"])
def test_the_next_daemon_that_takes_a_layer_up_does_not_publish_it(
        mount_allowing, mount, job_of, allow_again):
    stranger = job_of(mount, "two", STRANGER)
    stranger.put_group("THEIRS", KERNEL)
    mount.kill_daemon()
    mount.detach()
    again = mount_allowing(allow_again)
    assert str(STRANGER) in show(again, "two")["refused"]
    again.cli("job", "publish", "two")
    again.end_job("two")
    assert not is_published(again, "THEIRS")
    job_of(again, "one", TRUSTED).put_group("KEY", KERNEL)
    assert is_published(again)


def test_a_layer_of_a_time_when_nobody_looked_is_not_published(mount_allowing, job_of):
    open_to_all = mount_allowing(None)
    trusted = job_of(open_to_all, "one", TRUSTED)
    trusted.put("KEY", "k.cubin", b"x")
    open_to_all.kill_daemon()
    open_to_all.detach()
    mount = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    job_of(mount, "one", TRUSTED).put_group("KEY", KERNEL)
    assert not is_published(mount)
    assert "nobody looked" in explain(mount, "triton/KEY/k.cubin", "one")["not_published"]


def test_a_vouched_layer_is_taken_up_as_such(mount_allowing, mount, job_of):
    trusted = job_of(mount, "one", TRUSTED)
    trusted.put("KEY", "k.cubin", b"x")
    mount.kill_daemon()
    mount.detach()
    again = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    job_of(again, "one", TRUSTED).put_group("KEY", {"k.json": b"{}"})
    assert is_published(again)


def test_another_cycle_of_the_job_begins_clean_and_the_old_layer_stays_back(mount, job_of):
    stranger = job_of(mount, "both", STRANGER, env={"CACHESHIM_CYCLE": "1"})
    stranger.put_group("THEIRS", KERNEL)
    mount.cli("job", "end", "both", "--failure")
    stranger.close()
    again = job_of(mount, "both", STRANGER, env={"CACHESHIM_CYCLE": "2"})
    assert not again.exists("triton/THEIRS")
    again.put_group("AGAIN", KERNEL)
    mount.end_job("both")
    assert not is_published(mount, "THEIRS") and not is_published(mount, "AGAIN")


def test_what_was_thrown_away_no_longer_counts(mount, shared):
    trusted, stranger = shared
    held = stranger("hold", stranger.path("triton/note"), os.O_RDWR | os.O_CREAT)
    mount.cli("job", "discard", "both")
    assert show(mount, "both")["refused"] == ""
    trusted.put_group("KEY", KERNEL)
    assert is_published(mount)
    try:
        stranger("os.pwrite", held, b"still", 0)
    except OSError:
        pass  # its file is gone with the layer
    trusted.put_group("LATER", KERNEL)
    assert not is_published(mount, "LATER")


# ---- jobs proved by cgroups

@pytest.fixture
def cgroup():
    """Makes folders of the cgroup tree: cgroup("a/job_1") -> its cgroup.procs."""
    top = next((line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines()
                if line.split()[2] in ("cgroup", "cgroup2")
                and os.access(line.split()[1], os.W_OK) and can_make_in(line.split()[1])), None)
    if top is None:
        pytest.skip("no cgroup tree that can be written to")
    own, made = pathlib.Path(top, f"cacheshim-{uuid.uuid4()}"), []

    def make(path, owner=0):
        folder = own
        for part in ("", *path.split("/")):
            folder = folder / part
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
        os.chown(folder, owner, owner)
        return folder / "cgroup.procs"

    yield make
    for folder in reversed(made):
        for pid in (folder / "cgroup.procs").read_text().split():
            pathlib.Path(top, "cgroup.procs").write_text(pid)
        folder.rmdir()


def can_make_in(top):
    probe = pathlib.Path(top, f"cacheshim-probe-{uuid.uuid4()}")
    try:
        probe.mkdir()
        probe.rmdir()
        return (pathlib.Path(top) / "cgroup.procs").exists()
    except OSError:
        return False


def put_into(procs, process):
    procs.write_text(str(process.pid))


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


def test_its_environment_is_no_proof(mount_allowing, job_of):
    mount = mount_allowing('{ jobs = ["*"] }')
    job_of(mount, "4711", STRANGER, env={"SLURM_JOB_ID": "4711"}).put_group("KEY", KERNEL)
    assert not is_published(mount)


# ---- what such a job is to the others

def test_it_leads_flights_for_itself_alone(mount, job_of):
    stranger, second = job_of(mount, "two", STRANGER), job_of(mount, "two", STRANGER)
    trusted = job_of(mount, "one", TRUSTED)
    look = ("begin_and_look", "triton/KEY", NAME)
    assert not stranger(look[0], stranger.path(look[1]), NAME)
    assert not trusted(look[0], trusted.path(look[1]), NAME), "it waits for no stranger"
    second.start(look[0], second.path(look[1]), NAME)
    jobs.wait_until(lambda: mount.stats()["flight_waits"] == 1)
    trusted("triton_put", trusted.path("triton/KEY"), NAME, b"built")
    stranger("triton_put", stranger.path("triton/KEY"), NAME, b"stranger's")
    assert second.result()
    assert second.read(f"triton/KEY/{NAME}") == b"stranger's"
    assert mount.base("triton/KEY", NAME).read_bytes() == b"built"


def test_a_stranger_in_a_trusted_job_leads_nobody_else(mount, shared, job_of):
    trusted, stranger = shared
    other = job_of(mount, "other", TRUSTED)
    trusted("os.makedirs", trusted.path("triton/KEY"))
    assert not stranger.exists(f"triton/KEY/{NAME}")  # it leads, for its own job
    assert not other("begin_and_look", other.path("triton/KEY"), NAME)


def test_it_has_locks_of_its_own(mount, job_of):
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    name = "triton/KEY/lock"
    trusted("os.makedirs", trusted.path("triton/KEY"))
    held = trusted("os.open", trusted.path(name), os.O_RDWR | os.O_CREAT, 0o644)
    trusted("fcntl.flock", held, fcntl.LOCK_EX)
    assert stranger("try_flock_path", stranger.path(name)), "one who only reads it, too"
    trusted("fcntl.flock", held, fcntl.LOCK_UN)
    own = stranger("os.open", stranger.path(name), os.O_RDWR)
    stranger("fcntl.flock", own, fcntl.LOCK_EX)
    trusted("fcntl.flock", held, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_it_makes_no_lock_in_the_base(mount, job_of):
    stranger = job_of(mount, "two", STRANGER)
    stranger("os.makedirs", stranger.path("triton/KEY"))
    stranger("os.open", stranger.path("triton/KEY/lock"), os.O_RDWR | os.O_CREAT, 0o644)
    assert not mount.base("triton/KEY").exists()
    assert mount.layer_names("two") == ["triton/KEY/lock"]


def test_what_is_shared_is_not_written_through(mount, job_of):
    shared_file = "tensorrt-rtx/runtime.cache"  # of class shared
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    folder = os.path.dirname(shared_file)
    trusted("os.makedirs", trusted.path(folder), exist_ok=True)
    trusted.write(shared_file, b"trusted")
    assert mount.base(shared_file).read_bytes() == b"trusted"
    assert stranger.read(shared_file) == b"trusted"
    stranger.write(shared_file, b"stranger's")
    assert stranger.read(shared_file) == b"stranger's"
    stranger.write(f"{shared_file}.new", b"renamed")
    stranger("os.rename", stranger.path(f"{shared_file}.new"), stranger.path(shared_file))
    stranger("os.unlink", stranger.path(shared_file))
    assert trusted.read(shared_file) == mount.base(shared_file).read_bytes() == b"trusted"


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
