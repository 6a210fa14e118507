# SPDX-License-Identifier: Apache-2.0
"""Variables of a user's environment that sudo preserves do not lead root's processes to mounts, directories and files
of that user."""

import os
import pathlib
import shutil
import subprocess

import mounts
import pytest
from jobs import wait_until

STRANGER = 20002
VARIABLE = "TRITON_CACHE_DIR"
PRINT = ["/usr/bin/printenv", VARIABLE]


@pytest.fixture
def preloaded(library, scratch):
    """preloaded(argv, **variables) runs a command as root, with the library and these variables."""
    copy = shutil.copy(library, scratch / "libcacheshim.so")

    def run(argv, **variables):
        env = {"PATH": "/usr/bin:/bin", "HOME": str(scratch / "home"), "LD_PRELOAD": str(copy)}
        return subprocess.run([str(word) for word in argv], env={**env, **variables}, text=True, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return run


@pytest.fixture
def theirs(scratch):
    """A directory of the stranger."""
    directory = scratch / "theirs"
    directory.mkdir()
    os.chown(directory, STRANGER, STRANGER)
    return directory


@pytest.fixture
def their_mount(theirs, device, program):
    """A mount of the stranger that other users may enter, as fusermount's allow_other permits."""
    for name in ("store", "mnt"):
        (theirs / name).mkdir()
        os.chown(theirs / name, STRANGER, STRANGER)
    mount = mounts.Mount(theirs / "store", theirs / "mnt")
    words = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--inh-caps=+sys_admin",
             "--ambient-caps=+sys_admin", "--", program, "mount", "--store", mount.store, mount.path]
    made = mounts.run_mounting(words, mount.log)
    assert made.returncode == 0, made.stderr
    assert f"user_id={STRANGER}" in next(line for line in open("/proc/self/mountinfo", encoding="utf-8")
                                         if line.split()[4] == str(mount.path))
    pid = mount.daemon_pid()
    yield mount
    mount.close()
    # The daemon has /dev/fuse open, which the fixture `device` unmounts next.
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), what="the daemon's end")


# ---- the preloaded library


def test_the_library_uses_no_mount_of_another_user(their_mount, preloaded):
    ended = preloaded(PRINT, CACHESHIM_MOUNT=str(their_mount.path))
    assert ended.stdout == ""
    assert ended.stderr == (f"cacheshim: another user has mounted {their_mount.path}, so root does not use it; "
                            "running without it\n")
    strict = preloaded(PRINT, CACHESHIM_MOUNT=str(their_mount.path), CACHESHIM_STRICT="1")
    assert strict.returncode == 69


def test_the_library_uses_roots_mount(mount, preloaded):
    assert preloaded(PRINT, CACHESHIM_MOUNT=str(mount.path)).stdout == f"{mount.path}/triton\n"


def test_the_library_follows_no_symlink_to_a_mount(mount, theirs, preloaded):
    (theirs / "link").symlink_to(mount.path)
    (theirs / "above").symlink_to(mount.path.parent)
    for path in (theirs / "link", theirs / "above" / mount.path.name):
        ended = preloaded(PRINT, CACHESHIM_MOUNT=str(path))
        assert ended.stdout == "" and "no cacheshim mount at" in ended.stderr


@pytest.fixture
def covered_run():
    """Mounts an empty /run in the tests' mount namespace, as in a container that cannot see the run directory."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run"], check=True)
    yield
    subprocess.run(["umount", "-l", "/run"], check=True)


@pytest.fixture
def their_routes(mount_store, store, scratch):
    """The content of a `routes` file that makes the library set LD_LIBRARY_PATH."""
    profiles = scratch / "site/profiles.d"
    profiles.mkdir(parents=True)
    (profiles / "evil.toml").write_text('name = "evil"\nvariable = "LD_LIBRARY_PATH"\nevidence = "run"\n'
                                        'default_paths = ["/etc/evil"]\n[[entry]]\npath = "*"\n')
    (scratch / "site/site.toml").write_text("")
    mount = mount_store(store, "--config", scratch / "site/site.toml")
    yield (mount.run_directory() / "routes").read_bytes()


def test_the_library_reads_no_run_directory_of_another_user(their_routes, mount_store, scratch, theirs, preloaded,
                                                            request):
    (scratch / "other").mkdir()
    mount = mount_store(scratch / "other")
    run_directory = theirs / "cacheshim" / mount.run_directory().name
    request.getfixturevalue("covered_run")
    run_directory.mkdir(parents=True)
    (run_directory / "routes").write_bytes(their_routes)
    subprocess.run(["chown", "-R", f"{STRANGER}:{STRANGER}", theirs], check=True)
    ended = preloaded(["/usr/bin/env"], CACHESHIM_MOUNT=str(mount.path), XDG_RUNTIME_DIR=str(theirs))
    assert "LD_LIBRARY_PATH" not in ended.stdout
    assert f"{VARIABLE}={mount.path}/triton\n" in ended.stdout


def test_routes_of_the_user_who_has_called_sudo(mount_store, store, scratch, preloaded):
    """A file that the stranger has published must not replace a file of root."""
    secret = scratch / "etc/K/x.so"
    for file, text in ((secret, "of root"), (store / "triton/K/x.so", "of a stranger")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    mount = mount_store(store)
    variables = {"CACHESHIM_MOUNT": str(mount.path), "CACHESHIM_ROUTES": f"{scratch}/etc=triton"}
    for marker in ({"SUDO_UID": str(STRANGER)}, {"DOAS_USER": "stranger"}, {"PKEXEC_UID": str(STRANGER)}):
        ended = preloaded(["/bin/cat", secret], **variables, **marker)
        assert ended.stdout == "of root"
        assert ended.stderr == ("cacheshim: CACHESHIM_ROUTES may come from the user who ran sudo; root ignores "
                                "it\n")
    assert preloaded(["/bin/cat", secret], **variables).stdout == "of a stranger"  # root has set the variables itself


@pytest.mark.parametrize("kind", ["symlink", "above", "hard-link", "sticky", "file", "open-directory", "relative",
                                  "above-descriptors", "sudo"])
def test_the_library_writes_no_file_through_a_path_of_another_user(theirs, scratch, preloaded, kind):
    target = scratch / "target"
    target.write_text("before\n")
    variables = {"CACHESHIM_MOUNT": "/nonexistent\nevil line", "CACHESHIM_LOG": str(theirs / "log")}
    if kind == "symlink":
        (theirs / "log").symlink_to(target)
    elif kind == "above":
        (theirs / "up").symlink_to(scratch)
        variables["CACHESHIM_LOG"] = str(theirs / "up/target")
    elif kind == "hard-link":
        os.link(target, theirs / "log")
    elif kind == "sticky":  # like /tmp, where fs.protected_hardlinks may be off
        (scratch / "tmp").mkdir()
        (scratch / "tmp").chmod(0o1777)
        os.link(target, scratch / "tmp/log")
        variables["CACHESHIM_LOG"] = str(scratch / "tmp/log")
    elif kind == "file":
        shutil.copy(target, theirs / "log")
        target = theirs / "log"
    elif kind == "open-directory":
        (scratch / "open").mkdir()
        (scratch / "open").chmod(0o777)
        (scratch / "open/log").symlink_to(target)
        variables["CACHESHIM_LOG"] = str(scratch / "open/log")
    elif kind == "relative":
        variables["CACHESHIM_LOG"] = os.path.relpath(target)
    elif kind == "above-descriptors":  # /dev/fd is a symlink to /proc/self/fd
        (theirs / "log").symlink_to(target)
        variables["CACHESHIM_LOG"] = f"/dev/fd/../../..{theirs}/log"
    else:
        variables.update(CACHESHIM_LOG=str(target), SUDO_UID=str(STRANGER))
    ended = preloaded(["/bin/true"], **variables)
    assert target.read_text() == "before\n"
    [line] = ended.stderr.splitlines()
    assert line.startswith("cacheshim: no cacheshim mount at /nonexistent\\x0aevil line")


def test_root_may_log_to_a_file_of_its_own(scratch, preloaded):
    assert preloaded(["/bin/true"], CACHESHIM_MOUNT="/none", CACHESHIM_LOG=str(scratch / "log")).stderr == ""
    assert (scratch / "log").read_text().count("\n") == 1
    assert preloaded(["/bin/true"], CACHESHIM_MOUNT="/none", CACHESHIM_LOG="/dev/stderr").stderr.count("\n") == 1
    os.mkfifo(scratch / "fifo")  # without a reader
    assert preloaded(["/bin/true"], CACHESHIM_MOUNT="/none", CACHESHIM_LOG=str(scratch / "fifo")).stderr


# ---- the program


def run_cli(program, *argv, **variables):
    return mounts.run(program, *argv, env=variables)


@pytest.mark.parametrize("argv", [["status"], ["stats"], ["job", "list"], ["job", "end", "j", "--success"], ["gc"],
                                  ["verify"], ["explain", "triton/x"]], ids=" ".join)
def test_the_program_uses_no_mount_of_another_user(their_mount, program, argv):
    refused = run_cli(program, *argv, CACHESHIM_MOUNT=str(their_mount.path))
    assert (refused.returncode, refused.stdout) == (69, "")
    assert refused.stderr == (f"cacheshim: another user (uid {STRANGER}) has mounted '{their_mount.path}', which "
                              "CACHESHIM_MOUNT names; root uses it only with --mount\n")


def test_the_program_uses_a_mount_of_another_user_that_root_names(their_mount, program):
    assert run_cli(program, "status", "--mount", their_mount.path).returncode == 0


def test_run_runs_without_a_mount_of_another_user(their_mount, program):
    script = f"echo ${VARIABLE} $CACHESHIM_DISABLE"
    ended = run_cli(program, "run", "--", "sh", "-c", script, CACHESHIM_MOUNT=str(their_mount.path))
    assert (ended.returncode, ended.stdout) == (0, "1\n")
    assert f"another user (uid {STRANGER})" in ended.stderr and "without the cache" in ended.stderr


def test_doctor_reports_a_mount_of_another_user(their_mount, program):
    ended = run_cli(program, "doctor", CACHESHIM_MOUNT=str(their_mount.path))
    assert ended.returncode == 69
    assert any(line.startswith("problem  mount ") and "another user" in line for line in ended.stdout.splitlines())


def test_the_program_trusts_no_directory_that_simulates_a_mount(theirs, program):
    control = theirs / "fake/.cacheshim"
    control.mkdir(parents=True)
    for name in ("version", "stats"):
        (control / name).write_text("{}")
    (control / "status").write_text('{"mount": "forged"}')
    refused = run_cli(program, "status", CACHESHIM_MOUNT=str(theirs / "fake"))
    assert refused.returncode == 69 and "no cacheshim mount at" in refused.stderr
    assert "forged" not in refused.stdout


def test_the_program_resolves_a_symlink_to_roots_mount_once(mount, theirs, program):
    (theirs / "link").symlink_to(mount.path)
    assert run_cli(program, "status", CACHESHIM_MOUNT=str(theirs / "link")).returncode == 0
    (theirs / "link").unlink()
    (theirs / "link").symlink_to(theirs)
    assert run_cli(program, "status", CACHESHIM_MOUNT=str(theirs / "link")).returncode == 69


def test_run_mounts_nothing_at_a_path_of_the_user_who_has_called_sudo(store, scratch, program):
    """The directory stands for /etc: root's command must not see the store there."""
    place = scratch / "etc"
    place.mkdir()
    argv = ["run", "--store", store, "--", "ls", place]
    refused = run_cli(program, *argv, CACHESHIM_MOUNT=str(place), SUDO_UID=str(STRANGER))
    assert (refused.returncode, refused.stdout) == (69, "")
    assert "may come from the user who ran sudo" in refused.stderr
    assert run_cli(program, *argv, CACHESHIM_MOUNT=str(place)).returncode == 0


@pytest.mark.usefixtures("covered_run")
@pytest.mark.parametrize("sudo", [True, False], ids=["sudo", "root"])
def test_mount_lets_mount8_write_no_file_that_the_user_who_has_called_sudo_names(store, scratch, program, sudo):
    table = scratch / "table"
    table.write_text("")
    (scratch / "mnt").mkdir()
    variables = {"LIBMOUNT_UTAB": str(table), **({"SUDO_UID": str(STRANGER)} if sudo else {})}
    mount = mounts.Mount(store, scratch / "mnt")
    made = run_cli(program, "mount", "--store", store, mount.path, **variables)
    mount.close()
    assert made.returncode == 0, made.stderr
    assert (table.read_text() == "") == sudo


@pytest.mark.parametrize("sudo", [True, False], ids=["sudo", "root"])
def test_learn_works_in_no_directory_that_the_user_who_has_called_sudo_names(theirs, scratch, program, sudo):
    variables = {"TMPDIR": str(theirs), **({"SUDO_UID": str(STRANGER)} if sudo else {})}
    script = f"ls {theirs} > {scratch}/listed"
    run_cli(program, "profile", "learn", "--variable", "X", "--", "sh", "-c", script, **variables)
    assert ((scratch / "listed").read_text() == "") == sudo


# ---- the run directory


@pytest.mark.usefixtures("covered_run")
def test_a_private_mount_leaves_a_directory_that_only_root_changes(store, scratch, program):
    (scratch / "point").mkdir()
    before = os.umask(0)
    try:
        ended = run_cli(program, "run", "--store", store, "--mount", scratch / "point", "--", "true")
    finally:
        os.umask(before)
    assert ended.returncode == 0, ended.stderr
    assert os.stat("/run/cacheshim").st_mode & 0o022 == 0


@pytest.mark.usefixtures("covered_run")
def test_a_daemon_uses_no_run_directory_that_others_can_replace(mount_store, store):
    os.mkdir("/run/cacheshim")
    os.chmod("/run/cacheshim", 0o777)
    mount = mount_store(store)
    assert not (mount.run_directory() / "state").exists()
    assert not (mount.run_directory() / "routes").exists()
    assert (mount.path / "triton").is_symlink()
