# SPDX-License-Identifier: Apache-2.0
"""The profiles that a mount uses, the users who can see them, and the reports of `profile check`."""

import json
import os
import pathlib
import shutil

import mounts
import pytest
from jobs import as_user, wait_until

PROFILE = """name = "{name}"
variable = "{variable}"
default_paths = ["~/.cache/{name}"]
evidence = "read"
[[entry]]
path = "*"
complete = ["DONE"]
[class]
scratch = ["*.tmp"]
"""


def profile(name, variable=None):
    return PROFILE.format(name=name, variable=variable or f"{name.upper()}_DIR")


@pytest.fixture
def beside(scratch):
    """A directory that only root can read, with a configuration file and a profiles.d."""
    directory = scratch / "own"
    (directory / "profiles.d").mkdir(parents=True)
    directory.chmod(0o700)
    (directory / "x.toml").write_text("")
    return directory


@pytest.fixture
def anybodys_program(scratch):
    """Copies of the program and its shipped profiles that every user can use."""
    copy = scratch / "dist"
    shutil.copytree(pathlib.Path(mounts.PROGRAM).parents[1], copy, symlinks=True)
    return copy / "bin" / "cacheshim"


def names(listed):
    return [line.split()[0] for line in listed.splitlines()[1:]]


def test_profiles_beside_the_named_configuration_are_used(beside, mount_store, store, job_of):
    (beside / "profiles.d/mine.toml").write_text(profile("mine"))
    (beside / "profiles.d/triton.toml").write_text(profile("triton", "OTHER_TRITON_DIR"))
    mount = mount_store(store, "--config", beside / "x.toml")
    assert "mine" in mount.status()["profiles"]
    shown = mount.cli("profile", "show", "triton").stdout
    assert "OTHER_TRITON_DIR" in shown and str(beside / "profiles.d/triton.toml") in shown
    one, two = job_of(mount, "one", 20001), job_of(mount, "two", 20002)
    one("os.makedirs", one.path("mine/KEY"))
    one.write("mine/KEY/DONE", b"x")
    wait_until(lambda: two.exists("mine/KEY/DONE"), what="that the entry is published")


def test_profiles_of_the_default_directory_are_used_beside_them(own_profiles, beside, mount_store,
                                                                store):
    (own_profiles / "site.toml").write_text(profile("site"))
    (own_profiles / "both.toml").write_text(profile("both", "SITE_DIR"))
    (beside / "profiles.d/both.toml").write_text(profile("both", "BESIDE_DIR"))
    mount = mount_store(store, "--config", beside / "x.toml")
    assert {"site", "both"} <= set(mount.status()["profiles"])
    assert "BESIDE_DIR" in mount.cli("profile", "show", "both").stdout


def test_an_ordinary_user_sees_the_profiles_of_a_mount(anybodys_program, beside, mount_store, store):
    (beside / "profiles.d/mine.toml").write_text(profile("mine"))
    mount = mount_store(store, "--config", beside / "x.toml")

    def ask(*words):
        return as_user(20001, [anybodys_program, "profile", *words, "--mount", mount.path])

    listed = ask("list")
    assert names(listed.stdout) == mount.status()["profiles"], listed.stderr
    row = next(line for line in listed.stdout.splitlines() if line.startswith("mine "))
    assert row.split() == ["mine", "read", "MINE_DIR", "~/.cache/mine",
                           str(beside / "profiles.d/mine.toml")]
    assert ask("show", "mine").stdout == mount.cli("profile", "show", "mine").stdout
    missing = ask("show", "nobody")
    assert missing.returncode == 1
    assert missing.stderr == (f"cacheshim: no profile 'nobody'; 'cacheshim profile list --mount "
                              f"{mount.path}' names them\n")


def test_an_ordinary_user_can_explain_a_path_of_a_profile_of_root(anybodys_program, beside,
                                                                 mount_store, store, job_of):
    (beside / "profiles.d/mine.toml").write_text(profile("mine"))
    mount = mount_store(store, "--config", beside / "x.toml")
    job_of(mount, "one", 20001).listdir("mine")
    answer = as_user(20001, [anybodys_program, "explain", "--json", "--mount", mount.path,
                             "/home/user/.cache/mine/KEY"],
                     job="one", env={"HOME": "/home/user"})
    assert json.loads(answer.stdout)["path"] == "mine/KEY", answer.stderr


def test_a_mount_shows_every_shipped_profile_as_its_file_does(mount):
    for name in mount.status()["profiles"]:
        assert (mount.cli("profile", "show", name).stdout
                == mounts.run(mounts.PROGRAM, "profile", "show", name).stdout)


def check(*files, timeout=mounts.COMMAND_TIMEOUT_S):
    result = mounts.run(mounts.PROGRAM, "profile", "check", *files, timeout=timeout)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def test_profile_check_names_file_line_and_reason(scratch):
    path = scratch / "mine.toml"
    path.write_text(profile("mine") + 'flight = ["x.tmp"]\nlock = ["lock"]\n')
    assert check(path) == (1, [f"cacheshim: {path}:10: class.flight: 'x.tmp' has no effect: its names "
                               "are of class scratch"])
    path.write_text(profile("mine"))
    assert check(path) == (0, [f"{path}: 'mine' is good"])


def test_profile_check_compares_with_the_installed_profiles(own_profiles, scratch):
    installed = own_profiles / "site.toml"
    installed.write_text(profile("site"))
    path = scratch / "mine.toml"
    path.write_text(profile("mine", "SITE_DIR"))
    assert check(path) == (1, [f"cacheshim: {path}:2: variable: 'SITE_DIR' is the variable of the "
                               f"profile 'site' (/etc/cacheshim/profiles.d/site.toml) too: one of the "
                               "two is not used"])
    assert check("/etc/cacheshim/profiles.d/site.toml")[0] == 0, "an installed one is not its own rival"
    path.write_text(profile("site"))
    assert check(path)[0] == 0, "a profile replaces the installed one of its name"


def test_profile_check_compares_the_given_profiles(scratch):
    for number in (1, 2):
        (scratch / f"{number}.toml").write_text(profile("mine"))
    code, lines = check(scratch / "1.toml", scratch / "2.toml")
    assert code == 1 and lines[0] == f"{scratch}/1.toml: 'mine' is good"
    assert [line.split(": ")[1:3] for line in lines[1:]] == [
        [f"{scratch}/2.toml:{line}", key]
        for line, key in ((1, "name"), (2, "variable"), (3, "default_paths"))]


@pytest.mark.timeout_s(320)
def test_profile_check_finds_nothing_wrong_with_the_shipped_profiles():
    directory = pathlib.Path(mounts.PROGRAM).parents[1] / "share/cacheshim/profiles"
    files = sorted(directory.glob("*.toml"))
    code, lines = check(*files, timeout=300)  # sanitized programs are slow on a busy machine
    assert (code, len(lines)) == (0, len(files)), lines
    assert len(files) >= 15 and os.path.isdir(directory)
