# SPDX-License-Identifier: Apache-2.0
"""The daemon never serves root the layer of another user, regardless of what that user has done before."""

import json
import os
import shutil
import subprocess

import mounts
import pytest
from jobs import as_user, wait_until

STRANGER, OTHER = 20002, 20003
KEY = "triton/k.so"


@pytest.fixture
def plant(mount_allowing, job_of):
    """plant(job) mounts a store where nobody may publish, and starts a process of STRANGER that writes the file KEY as
    the first process of `job`. Returns the mount and the process."""

    def make(job, allow="{}", **options):
        mount = mount_allowing(allow)
        if options.get("shared_uids"):
            started = as_user(STRANGER, [mounts.PROGRAM, "job", "start", job, "--shared-uids",
                                         "--mount", mount.path])
            assert started.returncode == 0, started.stderr
        stranger = job_of(mount, job, STRANGER)
        stranger.write(KEY, b"of a stranger")
        return mount, stranger

    return make


def assert_own_view(root):
    """Asserts that root's view lacks the stranger's file KEY, and that root can create and read its own file there."""
    assert not root.exists(KEY)
    with pytest.raises(FileNotFoundError):
        root.read(KEY)
    root.write(KEY, b"of root")
    assert root.read(KEY) == b"of root"
    assert root("os.stat", root.path(KEY)).st_uid == 0


@pytest.mark.parametrize("ids", [
    ("uid-0", None), ("uid-0", "uid-0"), ("ci-77", "ci-77")], ids=lambda ids: "-".join(map(str, ids)))
def test_a_job_id_that_a_stranger_was_first_to_use(plant, job_of, ids):
    claimed, roots = ids
    mount, stranger = plant(claimed)
    assert_own_view(job_of(mount, roots, 0))
    assert stranger.read(KEY) == b"of a stranger"


@pytest.mark.parametrize("variables", [
    {"CI_JOB_ID": "99"}, {"BUILD_TAG": "99"}, {"PBS_JOBID": "99"}, {"SLURM_JOB_ID": "99"}],
    ids=lambda variables: next(iter(variables)))
def test_a_job_that_roots_environment_names(plant, job_of, variables):
    mount, _ = plant("99")
    assert_own_view(job_of(mount, None, 0, env=variables))


def test_a_stranger_who_enters_a_job_that_root_uses(mount_allowing, job_of):
    mount = mount_allowing("{}")
    root = job_of(mount, "ci-77", 0)
    root.write("triton/mine", b"of root")
    stranger = job_of(mount, "ci-77", STRANGER)
    stranger.write(KEY, b"of a stranger")
    stranger.write("triton/mine", b"of a stranger")
    assert_own_view(root)
    assert not root.exists("triton/mine")


def test_the_path_of_another_users_view(plant, job_of):
    mount, stranger = plant("ci-77")
    stranger("os.symlink", "/etc/passwd", stranger.path("triton/link"))
    for root in (job_of(mount, None, 0), job_of(mount, "ci-77", 0)):
        for call in (("read_file", stranger.view(KEY)),
                     ("read_file", stranger.view("triton/link")),
                     ("os.readlink", stranger.view("triton/link")),
                     ("write_file", stranger.view("triton/new"), b"x")):
            with pytest.raises(PermissionError):
                root(*call)
        assert root("os.listdir", stranger.view("triton"))  # the daemon reports only the names
    assert stranger.read(KEY) == b"of a stranger"


def test_root_enters_a_shared_job_only_by_its_name(plant, job_of):
    mount, _ = plant("both", shared_uids=True)
    assert_own_view(job_of(mount, None, 0))
    member = job_of(mount, "both", 0)
    assert member.read(KEY) == b"of a stranger"
    assert member("os.stat", member.path(KEY)).st_uid == 0


@pytest.fixture
def set_uid_shell(scratch):
    """A set-uid copy of bash that root owns: like sudo, it starts other programs as root."""
    path = shutil.copy("/bin/bash", scratch / "shell")
    os.chmod(path, 0o4755)
    probe = as_user(STRANGER, [path, "-p", "-c", "id -u"])
    if probe.stdout.strip() != "0":
        pytest.skip("set-uid programs have no effect here")
    return path


@pytest.mark.parametrize("shared_uids", [False, True], ids=["private", "shared"])
@pytest.mark.parametrize("command", ["env -i cat {}; true", "cat {}; true", "exec cat {}"],
                         ids=["child-without", "child-with", "itself"])
def test_the_environment_of_a_set_uid_program(plant, set_uid_shell, command, shared_uids):
    """The stranger who starts the program sets its environment, including the job. (A set-uid shell and its children
    keep the real uid of their caller.)"""
    mount, stranger = plant("ci-77", shared_uids=shared_uids)
    read = as_user(STRANGER, [set_uid_shell, "-p", "-c", command.format(stranger.path(KEY))],
                   job="ci-77")
    assert "of a stranger" not in read.stdout
    assert "No such file" in read.stderr


@pytest.mark.parametrize("command", ["env -i cat {}; true", "exec env -i cat {}"])
def test_a_root_process_whose_parent_belongs_to_a_stranger(plant, scratch, command):
    mount, stranger = plant("ci-77")
    become_root = shutil.copy("/usr/bin/setpriv", scratch / "become-root")
    os.chmod(become_root, 0o4755)
    words = [become_root, "--reuid=0", "--regid=0", "--clear-groups", "/bin/sh", "-c",
             command.format(stranger.path(KEY))]
    read = as_user(STRANGER, words, job="ci-77")
    if "Operation not permitted" in read.stderr:
        pytest.skip("set-uid programs have no effect here")
    assert "of a stranger" not in read.stdout
    assert "No such file" in read.stderr


def test_a_process_that_becomes_another_user_leaves_roots_job(mount_allowing, job_of):
    """The process's environment still shows root's job (/proc/PID/environ changes only at an exec), but the
    daemon must use the process's new uid."""
    mount = mount_allowing("{}")
    process = job_of(mount, None, 0)
    process.write("triton/secret", b"of root")
    process("os.setresuid", STRANGER, STRANGER, STRANGER)
    assert not process.exists("triton/secret")
    assert process("os.readlink", process.path("triton")).endswith(f"uid-{STRANGER}/triton")


@pytest.mark.parametrize("job", ["uid-0", f"uid-{OTHER}"])
def test_another_users_own_job_cannot_be_begun(mount, job_of, job):
    stranger = job_of(mount, job, STRANGER)
    assert stranger("os.readlink", stranger.path("triton")).endswith(f"uid-{STRANGER}/triton")
    for call in ("os.listdir", "os.mkdir"):
        with pytest.raises((PermissionError, FileNotFoundError)):
            stranger(call, str(mount.path / ".jobs" / job))
    started = as_user(STRANGER, [mounts.PROGRAM, "job", "start", job, "--mount", mount.path])
    assert started.returncode == 1 and "belongs to another user" in started.stderr
    owner = job_of(mount, None, int(job[4:]))
    owner.write("triton/file", b"x")
    assert owner.read("triton/file") == b"x"


def test_uid_0_of_a_user_namespace_is_not_root(mount_allowing, job_of):
    mount = mount_allowing("{}")
    job_of(mount, None, 0).write(KEY, b"of root")
    read = as_user(STRANGER, ["unshare", "--user", "--map-root-user", "cat", mount.path / KEY])
    if "unshare failed" in read.stderr:
        pytest.skip("no user namespaces here")
    assert read.stdout == "" and "No such file" in read.stderr
    read = as_user(STRANGER, ["unshare", "--user", "--map-root-user", "cat", mount.path / KEY],
                   job="uid-0")
    assert read.stdout == "" and "No such file" in read.stderr


def test_capabilities_without_uid_0(plant):
    mount, stranger = plant("ci-77")
    words = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups",
             "--inh-caps=+dac_override,+dac_read_search",
             "--ambient-caps=+dac_override,+dac_read_search", "--", "cat", stranger.view(KEY)]
    read = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin"}, timeout=60, check=False)
    assert read.stdout == "" and "Permission denied" in read.stderr


def test_the_library_serves_root_its_own_view(plant, shimmed_job_of):
    mount, stranger = plant("ci-77")
    root = shimmed_job_of(mount, "ci-77", 0)
    assert_own_view(root)
    home = shimmed_job_of(mount, "uid-0", 0)
    assert home.read(KEY) == b"of root"


def test_the_library_leaves_roots_job_when_a_stranger_enters_it(mount_allowing, job_of, shimmed_job_of):
    mount = mount_allowing("{}")
    root = shimmed_job_of(mount, "ci-77", 0)
    root.write("triton/mine", b"of root")
    job_of(mount, "ci-77", STRANGER).write(KEY, b"of a stranger")
    assert_own_view(root)


def test_a_layer_that_is_recorded_as_a_strangers_is_not_given_to_root(mount_allowing, job_of, store):
    """Earlier versions could record a stranger as the owner of root's layer."""
    mount = mount_allowing("{}")
    root = job_of(mount, None, 0)
    root.write("triton/first", b"x")
    [record] = (store / ".cacheshim/layers/uid-0").glob("*/meta.json")
    mount.kill_daemon()
    mount.detach()
    record.write_text(json.dumps({**json.loads(record.read_text()), "uid": STRANGER}))
    again = mount_allowing("{}", name="again")
    assert_own_view(job_of(again, None, 0))
    assert not (again.path / "triton/first").exists()
    wait_until(lambda: len(again.uppers("uid-0")) == 2, what="a layer of root's own")
