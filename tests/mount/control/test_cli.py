# SPDX-License-Identifier: Apache-2.0
"""The program's messages, one line each, and the exit codes that scripts depend on."""

import json
import os
import select
import signal
import stat
import subprocess

import mounts
import pytest
from jobs import PYTHON, as_user, environment, wait_until

USER = 20001
USAGE, UNAVAILABLE, TIMED_OUT = 2, 69, 75
STATS = {
    "lookups", "hits_direct", "opens_base", "opens_layer", "misses", "flight_leases", "flight_waits",
    "flight_hits", "flight_timeouts", "flight_failures", "entries_published", "files_published", "bytes_published",
    "publish_conflicts", "publish_refused", "copy_ups", "lock_waits", "batons_reaped", "jobs_active",
    "worker_restarts", "verify_failures", "entries_rejected", "rebuilds_equal", "entries_replaced", "remote_hits",
    "remote_prefetched", "remote_misses", "remote_lease_waits", "remote_pushed", "remote_dropped", "remote_untrusted",
    "remote_errors", "remote_breaker_open", "remote_bytes_in", "remote_bytes_out",
}


def check_refusal(result, code, *parts):
    """Asserts that the exit code is `code`, stdout is empty, and stderr is a single line that contains all parts."""
    assert result.returncode == code, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("cacheshim: ")
    for part in parts:
        assert str(part) in result.stderr
    assert result.stdout == ""


@pytest.fixture
def point(scratch):
    path = scratch / "point"
    path.mkdir()
    return path


@pytest.fixture
def covered_device(scratch):
    """Simulates a machine whose kernel has no FUSE: opening /dev/fuse fails."""
    os.mknod(scratch / "no-fuse", stat.S_IFCHR | 0o666, os.makedev(60, 0))
    subprocess.run(["mount", "--bind", scratch / "no-fuse", "/dev/fuse"], check=True)
    yield
    subprocess.run(["umount", "/dev/fuse"], check=True)


# ---- errors of mount


def test_mount_needs_a_store_that_exists(program, scratch, point):
    result = mounts.run(program, "mount", "--store", scratch / "none", point)
    check_refusal(result, UNAVAILABLE, scratch / "none", "No such file or directory")


def test_mount_needs_a_store_that_is_a_directory(program, scratch, point):
    (scratch / "file").touch()
    result = mounts.run(program, "mount", "--store", scratch / "file", point)
    check_refusal(result, UNAVAILABLE, scratch / "file", "Not a directory")


def test_mount_needs_a_store_that_it_may_read(program, scratch, point):
    closed = scratch / "closed"
    closed.mkdir(mode=0o700)
    result = as_user(USER, [program, "mount", "--store", closed, point])
    check_refusal(result, UNAVAILABLE, closed, "Permission denied")


def test_mount_needs_a_mount_point(program, store, scratch):
    result = mounts.run(program, "mount", "--store", store, scratch / "none")
    check_refusal(result, UNAVAILABLE, "mount point", scratch / "none")
    (scratch / "file").touch()
    result = mounts.run(program, "mount", "--store", store, scratch / "file")
    check_refusal(result, UNAVAILABLE, scratch / "file", "not a directory")


def test_mount_needs_a_mount_point_that_is_free(program, mount, store):
    result = mounts.run(program, "mount", "--store", store, mount.path)
    check_refusal(result, UNAVAILABLE, mount.path, "busy")
    assert mount.status()["store"] == str(store)


@pytest.mark.usefixtures("covered_device")
def test_mount_and_run_need_the_fuse_device(program, store, point):
    check_refusal(mounts.run(program, "mount", "--store", store, point), UNAVAILABLE, "/dev/fuse")
    argv = [program, "run", "--store", store, "--mount", point, "true"]
    check_refusal(mounts.run(*argv), UNAVAILABLE, "/dev/fuse")
    assert not mounts.is_mounted(point)


def test_mount_refuses_a_store_of_a_newer_format(program, mount, store):
    mount.unmount()
    form = store / ".cacheshim/format"
    text = form.read_text()
    form.write_text("".join("9" if c.isdigit() else c for c in text))
    result = mount.try_mount()
    check_refusal(result, UNAVAILABLE, "format")


def test_mount_options_are_checked(program, store, point):
    result = mounts.run(program, "mount", "--store", store, "-o", "ro,colour", point)
    check_refusal(result, USAGE, "'colour'", "known are", "noexec")


def test_read_only_mounts_are_read_only(mount_store, store):
    (store / "triton").mkdir()
    mount = mount_store(store, "-o", "ro,noexec")
    with pytest.raises(OSError) as error:
        (mount.path / "triton/x").write_text("")
    assert error.value.errno == 30  # EROFS


@pytest.mark.parametrize("text, part", [
    ("threads = 2\ncolour = 1\n", ":2: unknown key 'colour'"),
    ("layer_keep = 'soon'\n", ":1: layer_keep: must be a duration"),
    ("[publish]\npolicy = 'often'\n", ":2: publish.policy: must be one of"),
    ("threads = \n", ":1: "),
])
def test_the_configuration_is_checked(program, store, point, scratch, text, part):
    config = scratch / "cacheshim.toml"
    config.write_text(text)
    result = mounts.run(program, "mount", "--store", store, "--config", config, point)
    check_refusal(result, USAGE, f"{config}{part}")
    result = mounts.run(program, "mount", "--store", store, "--config", scratch / "none", point)
    check_refusal(result, USAGE, scratch / "none")


def test_the_configuration_is_applied(mount_store, store, scratch):
    (scratch / "layers").mkdir()
    config = scratch / "cacheshim.toml"
    config.write_text(f"layers = '{scratch}/layers'\nthreads = 2\n[publish]\npolicy = 'never'\n")
    status = mount_store(store, "--config", str(config)).status()
    assert (status["publish"], status["layers"]) == ("never", f"{scratch}/layers")


@pytest.mark.usefixtures("library")
def test_the_cuda_configuration_reaches_the_programs(mount_store, store, scratch):
    config = scratch / "cacheshim.toml"
    config.write_text("[cuda.programs]\n'sh' = 'off'\n'python3*' = 'select'\n")
    mount = mount_store(store, "--config", str(config))
    say = "echo ${CUDA_MODULE_LOADING-unset}"
    python = "import os; print(os.environ['CUDA_MODULE_LOADING'])"
    for command, expected in [(["sh", "-c", say], "unset"), (["bash", "-c", say], "EAGER"),
                              (["/usr/bin/python3", "-c", python], "LAZY")]:
        assert run_on(mount, *command).stdout.strip() == expected, command


def test_a_dead_mount_is_freed_with_a_line_that_says_so(mount):
    mount.kill_daemon()
    result = mount.try_mount()
    assert result.returncode == 0
    assert "whose daemon was dead" in result.stderr
    assert mount.status()["pid"]
    assert sum(str(mount.path) == line.split()[4] for line in open("/proc/self/mountinfo")) == 1


def test_the_daemon_keeps_no_descriptor_of_its_caller(program, mount_store, store, scratch):
    point = scratch / "p"
    point.mkdir()
    reader, writer = os.pipe()
    # The caller passes three pipes: stdout, stderr and one more. If the daemon kept the write end of a pipe open,
    # the pipe's reader would never reach the end of the data.
    result = subprocess.run([program, "mount", "--store", store, point], capture_output=True,
                            pass_fds=[writer], timeout=30, check=False)
    os.close(writer)
    assert result.returncode == 0
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert mounts.run(program, "unmount", point).returncode == 0


def test_run_directories_belong_to_their_daemon_alone(mount):
    directory = mount.status()["run_dir"]
    assert os.stat(directory).st_mode & 0o022 == 0
    for name in os.listdir(directory):
        assert os.stat(f"{directory}/{name}").st_mode & 0o022 == 0, name


# ---- unmount


def test_unmount_needs_a_mount(program, point):
    check_refusal(mounts.run(program, "unmount", point), UNAVAILABLE, "no cacheshim mount", point)


def test_unmount_names_the_users_of_the_mount(program, mount):
    with subprocess.Popen(["sleep", "60"], cwd=mount.path / ".jobs") as user:
        result = mounts.run(program, "unmount", mount.path)
        user.kill()
    check_refusal(result, 1, "nothing was unmounted", f"sleep (pid {user.pid}, current directory)")
    assert mounts.is_mounted(mount.path)


def test_unmount_returns_when_the_daemon_has_ended(program, mount):
    daemon = os.pidfd_open(mount.daemon_pid())
    assert mounts.run(program, "unmount", mount.path).returncode == 0
    assert not mounts.is_mounted(mount.path)
    assert is_gone(daemon)
    os.close(daemon)


def is_gone(pidfd):
    return bool(select.select([pidfd], [], [], 0)[0])


def test_unmount_frees_a_dead_mount(program, mount):
    mount.kill_daemon()
    result = mounts.run(program, "unmount", mount.path)
    assert (result.returncode, "daemon was dead" in result.stderr) == (0, True)
    assert not mounts.is_mounted(mount.path)


# ---- usage


@pytest.mark.parametrize("argv", [
    [], ["bogus"], ["mount"], ["mount", "--bogus", "/x"], ["run"], ["run", "--bogus", "true"],
    ["run", "--job", "a/b", "true"], ["run", "--cycle", "a b", "true"], ["job"], ["job", "end", "x"],
    ["job", "end", "x", "--success", "--failure"], ["job", "show", "a b"], ["job", "wait"],
    ["status", "--bogus"],
])
def test_wrong_usage_is_exit_code_2_and_one_line(program, argv):
    check_refusal(mounts.run(program, *argv), USAGE)


def test_a_bad_job_id_says_what_is_allowed(program, mount):
    result = mount.cli("job", "end", "a/b", "--success", check=False)
    check_refusal(result, USAGE, "invalid job id 'a/b'", "letters, digits and ._-")


def test_help_and_version_work_for_every_user(program):
    text = mounts.run(program, "--help")
    assert text.returncode == 0
    for part in ("mount", "run", "job", "stats", "Examples:", "Exit codes:", "CACHESHIM_MOUNT"):
        assert part in text.stdout
    assert mounts.run(program, "--version").stdout.startswith("cacheshim ")
    for command in ("mount", "unmount", "run", "job", "status", "stats"):
        assert mounts.run(program, command, "--help").returncode == 0
    usage = mounts.run(program, "run", "--help").stdout
    assert "Usage: cacheshim run [OPTIONS] [--] COMMAND...\n" in usage


# ---- status, stats, job


@pytest.mark.parametrize("argv", [["status"], ["stats"], ["job", "list"], ["job", "show", "x"],
                                  ["job", "end", "x", "--failure"]])
def test_commands_exit_with_69_without_a_mount(program, point, argv, mount):
    result = mounts.run(program, *argv, "--mount", point)
    check_refusal(result, UNAVAILABLE, "no cacheshim mount", point)
    mount.kill_daemon()
    check_refusal(mount.cli(*argv, check=False), UNAVAILABLE, "dead", mount.path)


def test_the_mount_comes_from_the_environment(program, mount):
    result = mounts.run(program, "status", env={"CACHESHIM_MOUNT": str(mount.path)})
    assert result.returncode == 0, result.stderr
    assert str(mount.store) in result.stdout


def test_status_lists_the_publishers(mount):
    text = mount.cli("status").stdout
    for part in (mount.path, mount.store, "every local user", f"pid {mount.daemon_pid()}"):
        assert str(part) in text


def test_stats_have_the_agreed_names(mount):
    stats = mount.stats()
    assert set(stats) == STATS
    assert all(isinstance(value, int) for value in stats.values())
    assert mount.cli("stats").stdout.split()[0] == "lookups"


def test_a_job_from_start_to_end(mount):
    assert mount.cli("job", "start", "one").stdout == "job one started\n"
    assert "one" in mount.cli("job", "list").stdout
    shown = json.loads(mount.cli("job", "show", "one", "--json").stdout)
    assert (shown["job"], shown["state"]) == ("one", "active")
    assert "active" in mount.cli("job", "show", "one").stdout
    check_refusal(mount.cli("job", "wait", "one", "--timeout", "1", check=False), TIMED_OUT, "'one'")
    assert mount.cli("job", "end", "one", "--success").stdout.startswith("job one ended with success")
    assert mount.cli("job", "wait", "one").returncode == 0
    assert "ended" in mount.cli("job", "show", "one").stdout


def test_waiting_for_a_failed_job_fails(mount):
    mount.cli("job", "start", "bad")
    mount.cli("job", "end", "bad", "--failure")
    result = mount.cli("job", "wait", "bad", check=False)
    assert (result.returncode, "failure" in result.stdout) == (1, True)


def test_an_unknown_job_cannot_be_ended(mount):
    check_refusal(mount.cli("job", "end", "none", "--success", check=False), 1, "none")


# ---- run


def run_on(mount, *argv, **options):
    return mounts.run(mounts.PROGRAM, "run", "--mount", mount.path, *argv, **options)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)])
def test_run_returns_the_commands_exit_code_and_ends_the_job_accordingly(mount, script, code):
    result = run_on(mount, "--job", "r", "--", "sh", "-c", script)
    assert result.returncode == code, result.stderr
    job = json.loads(mount.cli("job", "show", "r", "--json").stdout)
    assert (job["state"], job["outcome"]) == ("ended", "failure" if code else "success")


@pytest.mark.usefixtures("library")
def test_run_returns_shells_codes_for_commands_that_cannot_be_run(mount):
    check_refusal(run_on(mount, "no-such-command"), 127, "no-such-command")
    check_refusal(run_on(mount, "/"), 126, "'/'")


@pytest.mark.preloads_program
def test_run_sets_the_commands_variables(mount, library):
    script = "echo $CACHESHIM_JOB $CACHESHIM_CYCLE $CACHESHIM_MOUNT $LD_PRELOAD \"$@\""
    result = run_on(mount, "--job", "j", "--cycle", "3", "sh", "-c", script, "sh", "--job", "--",
                    env={"LD_PRELOAD": f"libcacheshim.so:{library}"})
    assert result.stdout.split() == ["j", "3", str(mount.path), os.path.realpath(library), "--job",
                                     "--"]


@pytest.mark.usefixtures("library")
def test_run_takes_the_schedulers_job(mount):
    result = run_on(mount, "sh", "-c", "echo $CACHESHIM_JOB", env={"CI_JOB_ID": "77"})
    assert result.stdout == "77\n"
    result = run_on(mount, "sh", "-c", "echo $CACHESHIM_JOB")
    assert result.stdout.startswith("run-")


def test_run_without_a_mount_still_runs_the_command(program, point):
    argv = [program, "run", "--mount", point, "sh", "-c", "echo $CACHESHIM_DISABLE; exit 3"]
    result = mounts.run(*argv)
    assert (result.returncode, result.stdout) == (3, "1\n")
    assert len(result.stderr.splitlines()) == 1 and "without the cache" in result.stderr
    for on in ("1", "yes"):
        check_refusal(mounts.run(*argv, env={"CACHESHIM_STRICT": on}), UNAVAILABLE, point)


@pytest.mark.usefixtures("library")
def test_run_passes_signals_on(mount):
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done"
    with subprocess.Popen([mounts.PROGRAM, "run", "--mount", mount.path, "sh", "-c", script],
                          stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(20) == 9


@pytest.mark.usefixtures("library")
def test_a_shells_redirection_into_the_cache_is_published_whole(mount):
    # The shell closes a duplicate of the file's descriptor before `echo` writes: that close must not publish the file.
    script = f"mkdir -p {mount.path}/triton/K && echo whole > {mount.path}/triton/K/k.json"
    assert run_on(mount, "sh", "-c", script).returncode == 0
    assert (mount.store / "triton/K/k.json").read_text() == "whole\n"


# ---- run --store


def private_run(program, store, *argv, uid=None, **options):
    argv = [program, "run", "--store", store, *argv]
    return as_user(uid, argv, **options) if uid else mounts.run(*argv, **options)


@pytest.mark.usefixtures("library", "device")
@pytest.mark.parametrize("uid", [0, USER])
def test_only_its_command_sees_a_private_mount(program, store, uid):
    os.chown(store, uid, uid)
    before = open("/proc/self/mountinfo").read()
    script = ("id -u; stat -f -c %T /ci-cache; mkdir -p /ci-cache/triton/K; "
              f"{PYTHON} -I -c 'open(\"/ci-cache/triton/K/k.so\", \"w\").write(\"x\")'; exit 5")
    result = private_run(program, store, "sh", "-c", script, uid=uid)
    assert result.returncode == 5, result.stderr
    assert result.stdout.split() == [str(uid), "fuseblk" if "blk" in result.stdout else "fuse"]
    assert (store / "triton/K/k.so").read_text() == "x"
    assert open("/proc/self/mountinfo").read() == before


@pytest.mark.usefixtures("library")
def test_a_private_mount_keeps_the_current_directory_and_the_whole_tree(program, store, scratch):
    result = private_run(program, store, "sh", "-c", "pwd; ls /", cwd=scratch)
    assert result.returncode == 0, result.stderr
    pwd, *names = result.stdout.split()
    assert pwd == str(scratch)
    visible = {name for name in os.listdir("/") if not name.startswith(".")}
    assert set(names) == visible | {"ci-cache"}


@pytest.mark.usefixtures("library")
def test_a_private_mount_is_at_the_requested_path(program, store, point, scratch):
    result = private_run(program, store, "--mount", point, "sh", "-c", f"ls -a {point}")
    assert ".cacheshim" in result.stdout.split(), result.stderr
    result = private_run(program, store, "--mount", scratch / "none", "true")
    check_refusal(result, UNAVAILABLE, scratch / "none", "the command was not run")


def test_a_missing_store_is_an_error_for_run(program, scratch):
    check_refusal(private_run(program, scratch / "none", "true"), UNAVAILABLE, scratch / "none")


@pytest.mark.usefixtures("library", "device")
@pytest.mark.parametrize("uid", [0, USER])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_private_run_that_is_killed_leaves_nothing_behind(program, store, scratch, uid, how):
    os.chown(store, uid, uid)
    # The second of the shell's two background processes ignores SIGTERM. The shells' command lines contain the scratch
    # directory, so the fixture `scratch` kills them if this test fails.
    script = (f"(exec sleep 600.5) & (trap '' TERM; echo ready; "
              f": {scratch}/; sleep 600) & sleep 600")
    process = subprocess.Popen([program, "run", "--store", store, "sh", "-c", script],
                               user=uid, group=uid, extra_groups=[], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, env=environment(None, None))
    assert process.stdout.readline() == b"ready\n"
    inside = namespace_members(process.pid)
    assert len(inside) >= 5  # the keeper, the daemon, the shell, and two children
    process.send_signal(how)
    assert process.wait(20) == (143 if how == signal.SIGTERM else -how)
    process.stdout.close()
    for pidfd in inside:
        wait_until(lambda fd=pidfd: is_gone(fd), 10, "the end of all that ran inside")
        os.close(pidfd)


def namespace_members(parent):
    """Returns pidfds of the processes in the mount namespace of a child of `parent`."""
    with open(f"/proc/{parent}/task/{parent}/children", encoding="utf-8") as file:
        keeper = file.read().split()[0]
    wanted = os.readlink(f"/proc/{keeper}/ns/mnt")
    members = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/ns/mnt") == wanted:
                members.append(os.pidfd_open(int(name)))
        except OSError:
            pass  # the process has exited
    return members
