# SPDX-License-Identifier: Apache-2.0
"""Each job has its own view. The view belongs to the job's user, who gets no permission errors in it."""

import errno
import os
import stat

import pytest
from jobs import as_user, wait_until

USERS = range(20001, 20009)


def work_as_caches_do(job, key):
    """Makes the calls that caches and their tools make for a key, through paths below the mount."""
    directory = job.path("triton", key)
    job("os.makedirs", directory, exist_ok=True)
    job.put(key, "kernel.cubin", b"cubin of " + job.job.encode())
    job.put(key, "kernel.cubin", b"again of " + job.job.encode())  # replaces an existing file
    file = os.path.join(directory, "kernel.cubin")
    job("os.chmod", file, 0o600)
    job("os.chmod", directory, 0o700)
    job("os.utime", file, (1_000_000_000, 1_000_000_000))
    job("os.utime", directory)
    job("shutil.copy2", file, os.path.join(directory, "copy"))
    job("shutil.copystat", file, directory)
    job("os.chmod", directory, 0o755)
    job("os.chown", file, job.uid, job.uid)
    assert job("read_file", os.path.join(directory, "copy")) == b"again of " + job.job.encode()
    job("shutil.rmtree", directory)
    assert not job("os.path.lexists", directory)
    job.put(key, "kernel.cubin", b"third of " + job.job.encode())
    assert job.listdir(f"triton/{key}") == ["kernel.cubin"]


@pytest.mark.parametrize("pid_namespace", [False, True], ids=["shared-pids", "equal-pids"])
@pytest.mark.parametrize("in_base", [False, True], ids=["new-key", "key-in-base"])
def test_eight_users_with_equal_keys_get_no_permission_error(mount_store, store, job_of,
                                                            pid_namespace, in_base):
    if in_base:
        (store / "triton/KEY/sub").mkdir(parents=True)
        (store / "triton/KEY/kernel.cubin").write_bytes(b"of the base")
        (store / "triton/KEY/sub/more").write_bytes(b"more of the base")
    mount = mount_store(store)
    jobs = [job_of(mount, f"job{uid}", uid, pid_namespace=pid_namespace) for uid in USERS]
    if pid_namespace:
        assert {job("os.getpid") for job in jobs} == {1}
    for job in jobs:
        work_as_caches_do(job, "KEY")
    for job in jobs:
        assert job.read("triton/KEY/kernel.cubin") == b"third of " + job.job.encode()
    if in_base:
        assert (store / "triton/KEY/kernel.cubin").read_bytes() == b"of the base"


def test_a_thread_works_in_the_job_of_its_process(mount, job_of):
    """A program may overwrite its environment after its first use of a cache (setproctitle)."""
    job = job_of(mount, "mine", 20001)
    job.write("triton/mine", b"mine")
    job("hide_environment")
    assert job("ask_in_thread", job.path("triton/mine"))


def test_another_jobs_view_is_closed(two_jobs):
    one, two = two_jobs
    one.write("triton/secret", b"of one")
    for path in (one.view(), one.view("triton"), one.view("triton/secret")):
        for call in ("os.listdir", "read_file", "os.rmdir"):
            with pytest.raises(PermissionError) as caught:
                two(call, path if path != one.view() else path + "/.")
            assert caught.value.errno == errno.EACCES
    assert not two.exists("triton/secret")


def test_a_second_user_who_names_a_job_gets_a_job_of_its_own(mount, job_of):
    owner, second = job_of(mount, "one", 20001), job_of(mount, "one", 20002)
    owner.write("triton/file", b"of 20001")
    assert not second.exists("triton/file")
    second.write("triton/file", b"of 20002")
    assert (owner.read("triton/file"), second.read("triton/file")) == (b"of 20001", b"of 20002")


def test_root_symlink_answers_each_caller_with_its_own_view(two_jobs):
    for _ in range(100):
        for job in two_jobs:
            target = job("os.readlink", job.path("triton"))
            assert target.endswith(f".jobs/{job.job}/triton"), target


@pytest.mark.parametrize(("job", "variables", "expected"), [
    (None, {}, "uid-20001"),
    ("plain-1.x_Y", {}, "plain-1.x_Y"),
    ("a/b c", {}, "a_b_c"),
    ("..", {}, "_."),
    ("x" * 200, {}, "x" * 128),
    (None, {"GITHUB_RUN_ID": "7", "GITHUB_JOB": "build", "RUNNER_NAME": "r 1"}, "7-build-r_1"),
    (None, {"CI_JOB_ID": "99", "BUILD_TAG": "other"}, "99"),
    ("mine", {"CI_JOB_ID": "99"}, "mine"),
])
def test_job_id_comes_from_the_environment_made_safe(mount, job_of, job, variables, expected):
    process = job_of(mount, job, 20001, env=variables)
    assert process("os.readlink", process.path("triton")).endswith(f".jobs/{expected}/triton")
    process.write("triton/file", b"x")
    assert process("os.path.exists", str(mount.path / ".jobs" / expected / "triton/file"))


def test_a_view_and_all_in_it_is_its_users_own(mount_store, store, job_of):
    (store / "triton/KEY").mkdir(parents=True)
    (store / "triton/KEY/file").write_bytes(b"of root")
    job = job_of(mount_store(store), "one", 20001)
    view = job("os.stat", job.view())
    assert (view.st_uid, stat.S_IMODE(view.st_mode)) == (20001, 0o700)
    for name in ("triton", "triton/KEY", "triton/KEY/file"):
        found = job("os.stat", job.view(name))
        assert (found.st_uid, found.st_gid) == (20001, 20001), name


def test_a_closed_base_file_stays_closed(mount_store, store, job_of):
    (store / "triton/KEY").mkdir(parents=True)
    (store / "triton/KEY/closed").write_bytes(b"secret")
    (store / "triton/KEY/closed").chmod(0o600)
    job = job_of(mount_store(store), "one", 20001)
    with pytest.raises(PermissionError):
        job.read("triton/KEY/closed")
    with pytest.raises(PermissionError):
        job("os.chmod", job.path("triton/KEY/closed"), 0o644)
        job.read("triton/KEY/closed")
    with pytest.raises(PermissionError):
        job("os.link", job.path("triton/KEY/closed"), job.path("triton/KEY/linked"))
        job("os.chmod", job.path("triton/KEY/linked"), 0o644)
        job.read("triton/KEY/linked")


def test_a_new_name_in_the_root_appears_in_its_makers_view_only(two_jobs):
    one, two = two_jobs
    with pytest.raises(FileExistsError):
        one("os.mkdir", one.path("mycache"))
    one("os.makedirs", one.path("mycache"), exist_ok=True)
    one.write("mycache/file", b"mine")
    assert one.read("mycache/file") == b"mine"
    assert not two("os.path.exists", two.path("mycache/file"))
    assert not two("os.path.exists", two.path("mycache"))
    two("os.makedirs", two.path("mycache"), exist_ok=True)
    assert two.listdir("mycache") == []


@pytest.mark.parametrize("call", [
    ("write_file", "{m}/file", b"x"), ("os.symlink", "to", "{m}/link"), ("os.mkfifo", "{m}/fifo"),
    ("bind_socket", "{m}/socket"), ("write_file", "{m}/.jobs/x", b"x"),
    ("write_file", "{m}/.cacheshim/x", b"x"), ("os.mkdir", "{m}/.cacheshim/x"),
], ids=lambda call: f"{call[0]}-{call[1 if call[0] != 'os.symlink' else 2]}")
def test_other_creations_in_the_root_are_refused(two_jobs, call):
    one, _ = two_jobs
    words = [w.format(m=one.mount) if isinstance(w, str) else w for w in call]
    with pytest.raises(PermissionError) as caught:
        one(*words)
    if "/." not in call[-1 if call[0] == "os.symlink" else 1]:
        assert caught.value.errno == errno.EPERM


def test_triton_directory_is_there_in_an_empty_store(two_jobs):
    one, two = two_jobs
    assert "triton" in one("os.listdir", str(one.mount))
    assert one.listdir("triton") == []
    two.put("KEY", "file", b"x")
    assert two.listdir("triton/KEY") == ["file"]


def test_rmdir_of_a_key_the_base_holds_gives_enotempty(mount_store, store, job_of):
    (store / "triton/KEY").mkdir(parents=True)
    (store / "triton/KEY/file").write_bytes(b"of the base")
    job = job_of(mount_store(store), "one", 20001)
    temporary = job.path("triton/KEY/tmp.pid_1_x")
    job("os.mkdir", temporary)
    met = job("removedirs_error", temporary)
    assert met == [(temporary, 0), (job.path("triton/KEY"), errno.ENOTEMPTY)]


def test_a_base_file_changed_in_one_view_is_untouched_elsewhere(mount_store, store, job_of):
    (store / "triton/KEY").mkdir(parents=True)
    (store / "triton/KEY/file").write_bytes(b"of the base")
    mount = mount_store(store)
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    one.write("triton/KEY/file", b"changed")
    assert two.read("triton/KEY/file") == b"of the base"
    two("os.unlink", two.path("triton/KEY/file"))
    assert one.read("triton/KEY/file") == b"changed"
    assert (store / "triton/KEY/file").read_bytes() == b"of the base"
    assert not two.exists("triton/KEY/file")


def test_a_view_reached_by_its_own_path_is_the_same(two_jobs):
    one, _ = two_jobs
    one.write("triton/file", b"x")
    assert one("read_file", one.view("triton/file")) == b"x"
    by_link = one("os.stat", one.path("triton/file"))
    by_view = one("os.stat", one.view("triton/file"))
    assert (by_link.st_dev, by_link.st_ino) == (by_view.st_dev, by_view.st_ino)


def test_a_job_that_root_began_is_open_to_its_own_user_alone(mount):
    root = as_user(0, ["ls", mount.path / ".jobs/begun"])
    assert root.returncode == 0, root.stderr
    stranger = as_user(20001, ["ls", mount.path / ".jobs/begun"], job="other")
    assert stranger.returncode != 0 and "Permission denied" in stranger.stderr
    own = as_user(20002, ["mkdir", mount.path / ".jobs/begun/triton/KEY"], job="begun")
    assert own.returncode == 0, own.stderr
    later = as_user(20002, ["ls", mount.path / ".jobs/begun/triton"], job="from another shell")
    assert later.stdout == "KEY\n", later.stderr


def test_further_uids_of_a_job_that_shares_have_views_of_their_own(mount, program):
    started = as_user(0, [program, "job", "start", "shared", "--shared-uids", "--mount", mount.path])
    assert started.returncode == 0, started.stderr
    path = mount.path / "triton/KEY"
    one = as_user(20001, ["sh", "-c", f"mkdir {path} && echo one > {path}/x"], job="shared")
    assert one.returncode == 0, one.stderr
    two = as_user(20002, ["sh", "-c", f"cat {path}/x; echo two > {path}/x; chmod 600 {path}/x;"
                                      f" stat -c %u {path}/x"], job="shared")
    assert two.stdout == "one\n20002\n", two.stderr
    again = as_user(20001, ["sh", "-c", f"cat {path}/x; stat -c %u {path}/x"], job="shared")
    assert again.stdout == "two\n20001\n", again.stderr
    stranger = as_user(20003, ["ls", mount.path / ".jobs/shared/"], job="other")
    assert stranger.returncode != 0


def test_uids_of_one_job_see_what_the_others_write_to_an_open_file(mount, program, job_of):
    as_user(0, [program, "job", "start", "shared", "--shared-uids", "--mount", mount.path])
    one, two = job_of(mount, "shared", 20001), job_of(mount, "shared", 20002)
    one.write("triton/x", b"first", mode=0o666)
    reader = two("os.open", two.path("triton/x"), os.O_RDONLY)
    assert two("os.pread", reader, 100, 0) == b"first"  # the page cache now has the file's data
    writer = one("os.open", one.path("triton/x"), os.O_WRONLY)
    one("os.pwrite", writer, b"SECON", 0)
    wait_until(lambda: two("os.pread", reader, 100, 0) == b"SECON", what="the other's bytes")
    one("os.ftruncate", writer, 2)
    one("os.pwrite", writer, b"third", 2)
    wait_until(lambda: two("os.pread", reader, 100, 0) == b"SEthird", what="the new length")


def test_the_next_cycle_of_a_shared_job_is_closed_to_its_former_users(mount, job_of, program):
    """The second user can enter the view neither by its name nor from a working directory in it."""
    def of_root(*words):
        as_user(0, [program, "job", *words, "--mount", mount.path]).check_returncode()

    of_root("start", "shared", "--shared-uids")
    one, two = job_of(mount, "shared", 20001), job_of(mount, "shared", 20002)
    one.put("KEY", "x", b"one")
    assert two.read("triton/KEY/x") == b"one"
    two("os.chdir", two.path("triton"))
    of_root("end", "shared", "--success")
    of_root("start", "shared")
    one.put("KEY", "y", b"one")
    view = f"{mount.path}/.jobs/shared@20002/triton"
    for call in (("os.listdir", view), ("os.mkdir", f"{view}/made"), ("os.mkdir", "made"),
                 ("os.open", "KEY/y", os.O_RDONLY)):
        with pytest.raises(PermissionError):
            two(*call)
    refused = as_user(20002, [program, "job", "end", "shared", "--success", "--mount", mount.path])
    assert "belongs to uid 20001" in refused.stderr
    assert one.read("triton/KEY/y") == b"one"
