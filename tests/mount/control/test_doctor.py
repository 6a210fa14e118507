# SPDX-License-Identifier: Apache-2.0
"""`cacheshim doctor` must report a real fault and print what to do about it."""

import json
import os
import pathlib
import shutil
import subprocess
import time

import mounts
import pytest
from jobs import as_user, standing_still

NO_LOCKS = os.environ.get("CACHESHIM_NO_LOCKS",
                          str(mounts.REPOSITORY / "build/tests/mount/libno_locks.so"))
CHECKS = {"kernel", "fuse device", "fusermount3", "rootless mounts", "dead mounts", "configuration",
          "profiles", "library", "LD_PRELOAD", "environment", "default caches"}
MOUNT_CHECKS = {"mount", "mount options", "raw changes", "passthrough", "run directory"}
STORE_CHECKS = {"store file system", "free space", "store format", "store permissions",
                "store locks", "layers", "trash"}


class Report:
    def __init__(self, result):
        self.returncode = result.returncode
        self.json = json.loads(result.stdout) if result.stdout else {"checks": []}
        self.stderr = result.stderr

    def of(self, check, *healths):
        """Returns the findings of one check whose health is in `healths` (default: warnings and problems)."""
        return [one for one in self.json["checks"]
                if one["check"] == check and one["health"] in (healths or ("warning", "problem"))]

    def problems(self):
        return [one for one in self.json["checks"] if one["health"] == "problem"]


def check_finding(report, check, health, where, *parts):
    """Asserts that `check` has a finding with this health at `where`. The finding's text must contain all parts, and
    the finding must give advice."""
    for one in report.of(check, health):
        text = f"{one['what']}; {one['advice']}"
        if str(where) in one["where"] and all(str(part) in text for part in parts):
            assert one["advice"], one
            return
    raise AssertionError(f"no {health} of '{check}' at {where} with {parts}: {report.json}")


@pytest.fixture
def home(scratch):
    path = scratch / "home"
    path.mkdir()
    path.chmod(0o755)
    return path


@pytest.fixture
def doctor(program, home):
    def examine(*argv, env=None, user=None):
        words = [program, "doctor", "--json", *argv]
        env = {"HOME": str(home), **(env or {})}
        if user is not None:
            return Report(as_user(user, words, env=env))
        return Report(mounts.run(*words, env=env))
    return examine


def test_a_healthy_mount_has_no_problem(mount, doctor, two_jobs):
    two_jobs[0].write("triton/file", b"x")
    report = doctor("--mount", mount.path)
    assert report.returncode == 0, report.problems()
    assert report.json["problems"] == 0 and report.json["available"]
    assert report.json["store"] == str(mount.store)
    assert {one["check"] for one in report.json["checks"]} >= CHECKS | MOUNT_CHECKS | STORE_CHECKS
    assert {one["health"] for one in report.json["checks"]} <= {"ok", "warning"}
    assert report.of("layers", "ok")[0]["what"].startswith("1 layer, 0 of other nodes")


def test_each_check_prints_one_line(mount, program, home):
    lines = mounts.run(program, "doctor", "--mount", mount.path,
                       env={"HOME": str(home)}).stdout.splitlines()
    report = json.loads(mounts.run(program, "doctor", "--mount", mount.path, "--json",
                                   env={"HOME": str(home)}).stdout)
    assert len(lines) == len(report["checks"])
    for line, check in zip(lines, report["checks"]):
        assert line.split()[0] == check["health"]
        assert line[9:].startswith(check["check"]) and check["where"] in line
        if not check["check"].startswith("free"):  # the free space may differ between the two runs
            assert line.endswith(check["advice"] or check["what"])


def test_doctor_changes_nothing(mount, doctor, two_jobs):
    two_jobs[0].write("triton/file", b"x")
    mount.kill_daemon()
    def tree():
        return sorted((str(path), path.lstat().st_mtime_ns, path.lstat().st_ctime_ns)
                      for path in mount.store.rglob("*"))
    before = tree()
    doctor("--store", mount.store)
    assert tree() == before


def test_doctor_exits_with_69_without_a_mount_or_store(doctor, scratch):
    report = doctor("--mount", scratch / "none")
    assert report.returncode == 69 and not report.json["available"]
    assert report.of("mount", "problem")
    report = doctor("--store", scratch / "none")
    assert report.returncode == 69 and report.of("store", "problem")


def test_a_dead_mount_is_named_with_the_command_that_frees_it(mount, doctor, scratch):
    mount.kill_daemon()
    report = doctor("--mount", mount.path)
    assert report.returncode == 69
    check_finding(report, "mount", "problem", mount.path, "daemon is dead", "cacheshim unmount")
    elsewhere = doctor("--store", mount.store)
    assert elsewhere.returncode == 1
    check_finding(elsewhere, "dead mounts", "problem", mount.path,
                  "Transport endpoint is not connected", f"'cacheshim unmount {mount.path}'")
    assert mount.unmount().returncode == 0
    assert doctor("--store", mount.store).of("dead mounts") == []


def test_a_daemon_that_does_not_answer_is_not_waited_for(mount, doctor):
    with standing_still(mount.daemon_pid()):
        report = doctor("--mount", mount.path)
        assert report.returncode == 69
        check_finding(report, "mount", "problem", mount.path, "does not answer")
        check_finding(report, "dead mounts", "warning", mount.path, "does not answer")


@pytest.mark.parametrize("text, part", [("99\n", "format 99 is newer"), ("junk\n", "damaged")])
def test_a_store_of_another_format(doctor, store, text, part):
    (store / ".cacheshim").mkdir(mode=0o700)
    (store / ".cacheshim/format").write_text(text)
    report = doctor("--store", store)
    assert report.returncode == 1
    check_finding(report, "store format", "problem", store, part)


def test_entries_that_name_files_which_no_job_can_use(mount, doctor, store):
    for key, path in {"GOOD": mount.path / "triton/GOOD/k.cubin", "RELATIVE": "cache/RELATIVE/k.cubin",
                      "ELSEWHERE": "/elsewhere/triton/ELSEWHERE/k.cubin"}.items():
        (store / "triton" / key).mkdir(parents=True)
        (store / "triton" / key / "k.cubin").write_bytes(b"cubin")
        group = json.dumps({"child_paths": {"k.cubin": str(path)}})
        (store / "triton" / key / "__grp__k.json").write_text(group)
    report = doctor("--mount", mount.path)
    check_finding(report, "recorded paths", "warning", store, "3 entries read", "2 files name",
                  "RELATIVE/__grp__k.json", "ELSEWHERE/__grp__k.json", "verify --repair")
    assert report.returncode == 0
    check_finding(doctor("--store", store), "recorded paths", "warning", store, "2 files name")
    mount.cli("verify", "--repair", check=False)
    assert doctor("--mount", mount.path).of("recorded paths") == []
    assert doctor("--mount", mount.path).of("recorded paths", "ok")


def test_entries_that_other_users_may_not_read(mount, doctor, store, job_of):
    (store / "triton/KEY").mkdir(parents=True)
    (store / "triton/KEY/k.cubin").write_bytes(b"cubin")
    assert doctor("--mount", mount.path).of("closed entries", "ok")
    (store / "triton/KEY/k.cubin").chmod(0o600)
    job = job_of(mount, "one", 20001)
    with pytest.raises(PermissionError):
        job("os.open", job.path("triton/KEY/k.cubin"), os.O_RDONLY)
    report = doctor("--mount", mount.path)
    check_finding(report, "closed entries", "warning", store, "1 is closed", "triton/KEY", "EACCES",
                  f"chmod -R a+rX {store}/triton")
    assert report.returncode == 0


def test_a_store_that_is_recorded_for_another_mount_path(mount, doctor, store):
    (store / ".cacheshim/format").write_text("1\nmount /somewhere-else\n")
    report = doctor("--mount", mount.path)
    check_finding(report, "store format", "warning", store, "/somewhere-else", mount.path)


@pytest.fixture
def small_file_system(scratch):
    def make(options):
        path = scratch / "small"
        path.mkdir()
        mounts.run("mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "small", path, check=True)
        return path
    return make


@pytest.mark.parametrize("options, health, part",
                         [("ro", "problem", "nothing can be published"),
                          ("noexec", "warning", "cannot be loaded")])
def test_flags_of_the_stores_file_system(doctor, small_file_system, options, health, part):
    path = small_file_system(options)
    report = doctor("--store", path)
    assert report.returncode == (1 if health == "problem" else 0)
    check_finding(report, "store file system", health, path, part, "tmpfs")


def test_little_space_and_few_inodes(doctor, small_file_system):
    path = small_file_system("size=4m,nr_inodes=100")
    report = doctor("--store", path)
    assert report.of("free space") == report.of("free inodes") == []
    (path / "fill").write_bytes(bytes(4 * 1024 * 1024 - 8192 * 4))
    check_finding(doctor("--store", path), "free space", "warning", path, "free of", "cacheshim gc")
    with pytest.raises(OSError):
        (path / "more").write_bytes(bytes(1024 * 1024))
    report = doctor("--store", path)
    check_finding(report, "free space", "problem", path, "nothing can be written")
    (path / "fill").unlink()
    with pytest.raises(OSError):
        for number in range(200):
            (path / f"{number}").touch()
    report = doctor("--store", path)
    assert report.returncode == 1
    check_finding(report, "free inodes", "problem", path, "no file can be made")


def test_a_store_that_the_service_account_may_not_write(doctor, store):
    report = doctor("--store", store, user=20001)
    assert report.returncode == 1
    check_finding(report, "store permissions", "problem", store, "uid 20001", "chown -R 20001")
    os.chown(store, 20001, 20001)
    (store / "triton").mkdir(mode=0o755)
    report = doctor("--store", store, user=20001)
    check_finding(report, "store permissions", "problem", store, "may not write to triton")
    os.chown(store / "triton", 20001, 20001)
    assert doctor("--store", store, user=20001).of("store permissions") == []


def test_a_store_that_is_open_to_everybody(mount, doctor):
    mount.store.chmod(0o777)
    check_finding(doctor("--mount", mount.path), "store permissions", "warning", mount.store,
                  "mode 0777")
    (mount.store / ".cacheshim").chmod(0o755)
    report = doctor("--mount", mount.path)
    assert report.returncode == 1
    check_finding(report, "store permissions", "problem", ".cacheshim", "chmod 0700")


def test_a_mount_that_loads_nothing(mount_store, store, doctor):
    report = doctor("--mount", mount_store(store, "-o", "noexec").path)
    assert report.returncode == 1
    check_finding(report, "mount options", "problem", "", "noexec")


def test_layers_whose_daemon_is_gone_and_what_is_left_over(mount, doctor, two_jobs):
    two_jobs[0].write("triton/file", b"x")
    report = doctor("--mount", mount.path)
    assert report.of("layers") == report.of("trash") == report.of("staging") == []
    mount.kill_daemon()
    mount.detach()
    foreign = mount.store / ".cacheshim/layers/other/0@far-away"
    foreign.mkdir(parents=True)
    (foreign / "meta.json").write_text('{"job": "other", "node": "far-away", "state": "active"}')
    report = doctor("--store", mount.store)
    check_finding(report, "layers", "warning", "layers", "1 of other nodes",
                  "the daemon of 1 active one is gone", "next mount")
    check_finding(report, "staging", "warning", "staging", "1 directory")
    assert report.of("trash") == []
    mount.mount()
    report = doctor("--mount", mount.path)
    assert report.of("layers") == report.of("staging") == []


def test_trash_that_is_never_emptied(doctor, store):
    trash = store / ".cacheshim/trash"
    trash.mkdir(parents=True)
    trash.parent.chmod(0o700)
    (trash / f"{int(time.time())}-node-1-0").mkdir()
    assert doctor("--store", store).of("trash") == []
    (trash / f"{int(time.time()) - 25 * 3600}-node-1-1").mkdir()
    check_finding(doctor("--store", store), "trash", "warning", trash, "1 object has been", "cacheshim gc")


@pytest.mark.preloads_program
def test_a_file_system_without_locks(mount_store, store, doctor, job_of, scratch):
    (store / "triton/KEY").mkdir(parents=True)
    point = scratch / "mnt0"
    point.mkdir()
    mount = mounts.Mount(store, point)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
    subprocess.run([mounts.PROGRAM, "mount", "--store", store, point], check=True,
                   env={**clean, "LD_PRELOAD": NO_LOCKS, "NO_LOCKS_BELOW": f"{store}/triton"})
    try:
        one, two = (job_of(mount, job, uid) for job, uid in (("one", 20001), ("two", 20002)))
        fds = [job("os.open", job.path("triton/KEY/lock"), os.O_RDWR | os.O_CREAT)
               for job in (one, two)]
        one("fcntl.flock", fds[0], 2)
        assert not two("try_flock_path", two.path("triton/KEY/lock"))  # the jobs of this mount exclude each other
        assert mount.status()["locks"] == "this mount"
        report = doctor("--mount", point)
        check_finding(report, "locks", "warning", point, "only among processes of this mount")
        report = doctor("--mount", point, env={"LD_PRELOAD": NO_LOCKS,
                                               "NO_LOCKS_BELOW": str(store)})
        check_finding(report, "store locks", "warning", store, "flock does not work")
    finally:
        for job in (one, two):
            job.close()
        mount.close()


def test_a_device_that_is_not_there_or_not_open_to_users(doctor, store, scratch, device):
    assert doctor("--store", store).of("fuse device") == []
    os.chmod(scratch / "fuse", 0o600)
    check_finding(doctor("--store", store), "fuse device", "warning", "/dev/fuse", "mode 0600")
    report = doctor("--store", store, user=20001)
    check_finding(report, "fuse device", "warning", "/dev/fuse", "this user cannot mount")
    os.mknod(scratch / "none", 0o020666, os.makedev(60, 0))
    subprocess.run(["mount", "--bind", scratch / "none", "/dev/fuse"], check=True)
    try:
        report = doctor("--store", store)
    finally:
        subprocess.run(["umount", "/dev/fuse"], check=True)
    assert report.returncode == 1
    check_finding(report, "fuse device", "problem", "/dev/fuse", "modprobe fuse")


def test_no_user_namespaces(program, store, home, scratch):
    """Runs doctor in a user namespace in which no nested user namespace can be created."""
    code = ("echo 0 > /proc/sys/user/max_user_namespaces && "
            f"exec {program} doctor --json --store {store}")
    result = subprocess.run(["unshare", "--user", "--map-root-user", "sh", "-c", code], text=True,
                            capture_output=True, check=False,
                            env={**os.environ, "HOME": str(home)})
    report = Report(result)
    check_finding(report, "rootless mounts", "warning", "", "cannot create a user namespace",
                  "max_user_namespaces")


def test_bad_configuration_and_profiles(doctor, store, scratch):
    config = scratch / "config/cacheshim"
    (config / "profiles.d").mkdir(parents=True)
    env = {"XDG_CONFIG_HOME": str(config.parent)}
    for path in (config.parent, config, config / "profiles.d"):
        path.chmod(0o755)
    report = doctor("--store", store, env=env, user=20001)
    assert report.of("configuration") == report.of("profiles") == []
    (config / "cacheshim.toml").write_text("thraeds = 3\n")
    (config / "profiles.d/bad.toml").write_text("name = 1\n")
    report = doctor("--store", store, env=env, user=20001)
    assert report.returncode == 1
    check_finding(report, "configuration", "problem", config, "thraeds")
    check_finding(report, "profiles", "problem", "", "bad.toml:1", "profile check")
    other = scratch / "other.toml"
    other.write_text("watch = 'never'\n")
    other.chmod(0o644)
    check_finding(doctor("--store", store, "--config", other), "configuration", "problem", other,
                  "watch")


@pytest.fixture
def installation(scratch, library):
    """A copy of the installed files, which the tests damage."""
    prefix = scratch / "prefix"
    built = pathlib.Path(mounts.PROGRAM).parent.parent
    shutil.copytree(built / "bin", prefix / "bin", symlinks=True)
    shutil.copytree(built / "share", prefix / "share")
    (prefix / "lib").mkdir()
    shutil.copyfile(library, prefix / "lib/libcacheshim.so")
    return prefix


def test_an_incomplete_installation(installation, store, home):
    def examine():
        return Report(mounts.run(installation / "bin/cacheshim", "doctor", "--json", "--store", store,
                                 env={"HOME": str(home)}))
    library = installation / "lib/libcacheshim.so"
    report = examine()
    assert report.of("library") == report.of("profiles") == []
    library.chmod(0o600)
    check_finding(examine(), "library", "problem", library, "chmod 0644")
    library.chmod(0o644)
    library.write_bytes(b"\x7fELF" + bytes(60))
    check_finding(examine(), "library", "problem", library, "cannot be preloaded")
    library.unlink()
    check_finding(examine(), "library", "problem", library, "No such file")
    shutil.rmtree(installation / "share/cacheshim/profiles")
    report = examine()
    assert report.returncode == 1
    check_finding(report, "profiles", "problem", "profiles", "nothing can be mounted")


@pytest.mark.preloads_program
def test_the_preloaded_library(doctor, store, library, scratch):
    assert doctor("--store", store, env={"LD_PRELOAD": library}).of("LD_PRELOAD") == []
    missing = scratch / "libcacheshim.so"
    report = doctor("--store", store, env={"LD_PRELOAD": str(missing)})
    assert report.returncode == 1
    check_finding(report, "LD_PRELOAD", "problem", missing, "cannot be preloaded")
    shutil.copyfile(library, missing)
    report = doctor("--store", store, env={"LD_PRELOAD": str(missing)})
    check_finding(report, "LD_PRELOAD", "warning", missing, "is not the installed")


@pytest.mark.parametrize("env, where, part", [
    ({"CACHESHIM_JBO": "1"}, "CACHESHIM_JBO", "no variable"),
    ({"CACHESHIM_JOB": "a/b"}, "CACHESHIM_JOB=a/b", "'a_b'"),
    ({"CACHESHIM_DISABLE": "1", "CACHESHIM_STRICT": "1"}, "CACHESHIM_DISABLE", "CACHESHIM_STRICT=1"),
    ({"CACHESHIM_DISABLE": "1"}, "CACHESHIM_DISABLE=1", "unset it"),
    ({"CACHESHIM_DISABLE": "yes"}, "CACHESHIM_DISABLE=yes", "the library does nothing"),
    ({"CACHESHIM_STRICT": "off"}, "CACHESHIM_STRICT=off", "counts as 1"),
    ({"CACHESHIM_PUBLISH": "always"}, "CACHESHIM_PUBLISH=always", "never, end, complete"),
    ({"CACHESHIM_CUDA_EAGER": "on"}, "CACHESHIM_CUDA_EAGER=on", "off, auto, force"),
    ({"CACHESHIM_LOG": "/none/log"}, "CACHESHIM_LOG=/none/log", "cannot be written"),
    ({"TRITON_CACHE_DIR": "/elsewhere"}, "TRITON_CACHE_DIR=/elsewhere", "not in the mount"),
])
def test_variables_that_contradict(doctor, store, env, where, part):
    assert doctor("--store", store).of("environment") == []
    check_finding(doctor("--store", store, env=env), "environment", "warning", where, part)


def test_variables_that_the_library_sets_for_children_are_known(doctor, store):
    env = {"CACHESHIM_HOME": "/root", "CACHESHIM_DIRECTORY": "/root", "CACHESHIM_CUDA_SET": "EAGER",
           "CACHESHIM_WARNED": "1"}
    assert doctor("--store", store, env=env).of("environment") == []


def test_a_umask_that_keeps_entries_from_being_published(program, store, home):
    words = ["sh", "-c", 'umask 027; exec "$0" "$@"', program, "doctor", "--json", "--store", store]
    report = Report(mounts.run(*words, env={"HOME": str(home)}))
    check_finding(report, "environment", "warning", "umask 0027", "not publish", "umask 022")


def test_doctor_reports_that_jobs_use_another_mount(mount, doctor, scratch):
    check_finding(doctor("--mount", mount.path), "environment", "warning", "CACHESHIM_MOUNT",
                  "is not set", f"export CACHESHIM_MOUNT={mount.path}")
    env = {"CACHESHIM_MOUNT": str(mount.path)}
    assert doctor("--mount", mount.path, env=env).of("environment") == []
    env = {"CACHESHIM_MOUNT": str(scratch / "other")}
    check_finding(doctor("--mount", mount.path, env=env), "environment", "warning", "other",
                  "do not use the mount")


def test_doctor_reports_default_caches_of_another_user(doctor, store, home):
    os.chown(home, 20001, 20001)
    assert doctor("--store", store, user=20001).of("default caches") == []
    (home / ".triton/cache").mkdir(parents=True)
    for path in (home / ".triton", home / ".triton/cache"):
        path.chmod(0o755)
    for user in (20001, None):  # doctor considers the owner of HOME, even if root runs it
        report = doctor("--store", store, user=user)
        check_finding(report, "default caches", "warning", home / ".triton/cache", "belongs to uid 0",
                      "PermissionError", "chown -R 20001")
    os.chown(home / ".triton/cache", 20001, 20001)
    assert doctor("--store", store, user=20001).of("default caches") == []
    (home / ".cache").mkdir(mode=0o755)  # owned by root, as `sudo pip` creates it
    report = doctor("--store", store, user=20001)
    assert [one["where"] for one in report.of("default caches")] == [str(home / ".cache")]
    gone = doctor("--store", store, env={"HOME": str(home / "none")})
    check_finding(gone, "default caches", "warning", home / "none", "no such home directory")
