# SPDX-License-Identifier: Apache-2.0
"""Runs every command that `--help` names, in three situations: with the library preloaded, inside a job, and with a
CACHESHIM_MOUNT that names no mount."""

import dataclasses
import pathlib
import re
import shutil

import jobs
import mounts
import pytest

pytestmark = pytest.mark.preloads_program

IN_TIME_S = 20
ROOT, USER = 0, 20001
FAILED, UNAVAILABLE = 1, 69


@dataclasses.dataclass(frozen=True)
class Row:
    """How a command is called, and its exit codes."""

    words: str             # the words after the command's name
    user: int | None = 0   # the exit code for a user other than root; None: only root runs the command
    none: int = UNAVAILABLE  # the exit code if CACHESHIM_MOUNT names no mount
    lines: int = 0         # the most lines on stderr, if CACHESHIM_MOUNT names no mount and the command succeeds


# The tests run the commands in this order, all on one mount.
ROWS = {
    "mount": Row("--store {other} {point}", user=None, none=0),
    "unmount": Row("{point}", user=None, none=0),
    "overlay": Row("-o lowerdir={other} {overlaid}", user=None, none=0),
    "run": Row("-- true", none=0, lines=1),
    "lock": Row("{lock} true", none=0),
    "job start": Row("4711"),
    "job list": Row(""),
    "job show": Row("4711"),
    "job publish": Row("4711"),
    "job discard": Row("4711"),
    "job end": Row("4711 --success"),
    "job wait": Row("4711"),
    "status": Row(""),
    "stats": Row(""),
    "metrics": Row(""),
    "explain": Row("triton/KEY/k.cubin"),
    "profile list": Row("", none=0),
    "profile show": Row("triton", none=0),
    "profile check": Row("{profile}", none=0),
    "profile learn": Row("--cache {cached} -- touch {cached}/a", user=None, none=0),
    "gc": Row("", user=FAILED),
    "remote keygen": Row("{keys}/key", none=0),
    "remote push": Row("--config {remote}", user=UNAVAILABLE),
    "remote ls": Row("--config {remote}", none=0),
    "remote get": Row("--config {remote}", user=UNAVAILABLE),
    "remote verify": Row("--config {remote}", none=0),
    "remote rm": Row("--config {remote} triton/ABSENT", none=0),
    "verify": Row("", user=FAILED),
    "doctor": Row(""),
    "preload-path": Row("", none=0),
    "completion": Row("bash", none=0),
}
# `doctor` also reports problems of this machine, which the tests cannot prevent. `remote rm` finds no entry.
MAY_FIND_A_PROBLEM = {"doctor", "remote rm"}


def commands_of(program, *words):
    """Returns the names of all commands without subcommands, as `--help` lists them: "status", "job end"."""
    text = mounts.run(program, *words, "--help").stdout
    listed = re.search(r"^subcommands:\s*\n((?: .+\n)+)", text, re.MULTILINE | re.IGNORECASE)
    names = re.findall(r"^ {2}([a-z-]+)(?= |$)", listed[1] if listed else "", re.MULTILINE)
    if not names:
        return [" ".join(words)]
    return [one for name in names for one in commands_of(program, *words, name)]


class Caller:
    """Runs the program's commands as one user, in one environment, with the words `before` in front of them."""

    def __init__(self, program, scratch, env, uid=ROOT, before=()):
        self._program, self._env, self._uid, self._before = program, env, uid, before
        self._places = {name: scratch / name for name in ("other", "point", "overlaid", "lock", "cached", "keys", "tier",
                                                         "remote")}
        for name in ("other", "point", "overlaid", "cached", "keys", "tier"):
            self._places[name].mkdir()
        for name in ("keys", "tier"):
            self._places[name].chmod(0o777)
        self._places["remote"].write_text(f"[remote]\nurl = \"file://{self._places['tier']}\"\n"
                                          f"sign_with = \"{self._places['keys']}/key\"\n")
        self._places["lock"].touch()
        self._places["lock"].chmod(0o666)
        self._places["profile"] = mounts.REPOSITORY / "profiles/triton.toml"

    def call(self, name, words):
        return self.run([*self._before, self._program, *name.split(),
                         *words.format(**self._places).split()])

    def run(self, argv):
        return jobs.as_user(self._uid, argv, env=self._env, timeout=IN_TIME_S)

    def call_all(self, code_of, lines_of):
        """Calls each command for which code_of(row) is not None. Returns a line for each command that exits with
        another code or prints too many lines on stderr: more than lines_of(row), or more than one if the command
        fails."""
        wrong = []
        for name, row in ROWS.items():
            code = code_of(row)
            if code is None:
                continue
            result = self.call(name, row.words)
            codes = {code, FAILED} if name in MAY_FIND_A_PROBLEM and code == 0 else {code}
            lines = result.stderr.splitlines()
            most = lines_of(row) if result.returncode == 0 else 1
            if result.returncode not in codes or len(lines) > most:
                wrong.append(f"{name}: {result.returncode}, not {code}: {result.stderr!r}")
        return wrong


@pytest.fixture
def preload(library, scratch):
    """The variables that preload the library, from a copy that every user can read."""
    return {"LD_PRELOAD": str(shutil.copy(library, scratch / "libcacheshim.so"))}


def on_mount(uid):
    return (lambda row: 0 if uid == ROOT else row.user), (lambda row: 0)


def test_every_command_of_the_program_has_a_row(program):
    assert sorted(commands_of(program)) == sorted(ROWS)


@pytest.mark.parametrize("uid", [ROOT, USER], ids=["root", "user"])
def test_commands_work_while_preloaded(program, scratch, mount, preload, uid):
    caller = Caller(program, scratch, {**preload, "CACHESHIM_MOUNT": str(mount.path)}, uid)
    assert caller.call_all(*on_mount(uid)) == []


@pytest.mark.parametrize("uid", [ROOT, USER], ids=["root", "user"])
def test_commands_work_inside_a_job(program, scratch, mount, uid):
    inside = [program, "run", "--job", "outer", "--"]
    caller = Caller(program, scratch, {"CACHESHIM_MOUNT": str(mount.path)}, uid, inside)
    assert caller.call_all(*on_mount(uid)) == []


@pytest.mark.parametrize("preloaded", [False, True], ids=["plain", "preloaded"])
@pytest.mark.parametrize("where", ["directory", "missing", "file"])
def test_commands_report_a_missing_mount_in_one_line(program, scratch, preload, where, preloaded):
    path = scratch / where
    if where == "directory":
        path.mkdir()
    elif where == "file":
        path.touch()
    env = {"CACHESHIM_MOUNT": str(path), **(preload if preloaded else {})}
    # If the library is preloaded, the command that `lock` or `run` starts also prints a line about the missing mount.
    wrong = Caller(program, scratch, env).call_all(
        lambda row: row.none, lambda row: max(row.lines, int(preloaded and row.none == 0)))
    assert wrong == []


def test_strict_mode_does_not_stop_the_program_from_mounting(program, scratch, preload):
    env = {**preload, "CACHESHIM_STRICT": "1", "CACHESHIM_MOUNT": str(scratch / "point")}
    caller = Caller(program, scratch, env)
    result = caller.call("mount", ROWS["mount"].words)
    assert (result.returncode, result.stderr) == (0, "")
    assert caller.call("status", "").returncode == 0


def test_the_preloaded_program_unmounts_and_mounts_its_own_mount(program, scratch, mount, preload):
    caller = Caller(program, scratch, {**preload, "CACHESHIM_MOUNT": str(mount.path)})
    helper = pathlib.Path(program).parents[1] / "sbin/mount.fuse.cacheshim"
    for argv in ([program, "unmount", mount.path],
                 [program, "mount", "--store", mount.store, mount.path],
                 [program, "unmount", mount.path],
                 [helper, mount.store, mount.path, "-o", "rw"],
                 [program, "status"]):
        result = caller.run(argv)
        assert (result.returncode, result.stderr) == (0, ""), argv


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("uid", [ROOT, USER], ids=["root", "user"])
def test_a_store_is_used_for_one_command_while_preloaded(program, scratch, mount, preload, uid):
    """The command that `run --store` starts uses that store, and not the mount that CACHESHIM_MOUNT names."""
    env = {**preload, "CACHESHIM_MOUNT": str(mount.path)}
    caller = Caller(program, scratch, env, uid)
    own = scratch / "own"
    own.mkdir()
    shutil.chown(own, uid, uid)
    script = f"mkdir -p {mount.path}/triton/K && echo x > {mount.path}/triton/K/k.so"
    result = caller.run([program, "run", "--store", own, "--", "sh", "-c", script])
    assert (result.returncode, result.stderr) == (0, "")
    assert (own / "triton/K/k.so").read_text() == "x\n"
    assert not (mount.store / "triton/K").exists()
    mount.unmount()  # before the fixture `device` unmounts /dev/fuse, which the daemon has open


def test_a_preloaded_lock_command_preloads_the_library_into_its_child(program, scratch, mount, preload):
    env = {**preload, "CACHESHIM_MOUNT": str(mount.path)}
    result = Caller(program, scratch, env).call("lock", "{lock} grep -c libcacheshim.so /proc/self/maps")
    assert (result.returncode, result.stderr) == (0, "")


def test_the_preloaded_program_uses_paths_without_redirection(program, scratch, mount, preload):
    """The library does not redirect the cacheshim program's own calls. A default path of a cache names the directory in
    the home directory, as it does in the user's shell."""
    home = scratch / "home"
    (home / ".triton/cache").mkdir(parents=True)
    env = {**preload, "CACHESHIM_MOUNT": str(mount.path), "CACHESHIM_JOB": "j", "HOME": str(home)}
    lock = home / ".triton/cache/x.lock"
    assert Caller(program, scratch, env).call("lock", f"{lock} true").returncode == 0
    assert lock.exists()
    assert mount.layer_files("j") == {}
