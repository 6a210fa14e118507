# SPDX-License-Identifier: Apache-2.0
"""A directory in which programs run, and its tree of files in a form that can be compared."""

import hashlib
import json
import os
import pathlib
import stat
import subprocess

from jobs import as_user, environment

PROGRAM_TIMEOUT_S = 300


class Place:
    """A directory of one user, native or in a job's view."""

    def __init__(self, path, uid, job):
        self.path, self.uid, self.job = pathlib.Path(path), uid, job

    def try_run(self, *argv, cwd=None, env=None, **options):
        """Runs a program as the place's user, in the directory or in `cwd` below it."""
        options.setdefault("timeout", PROGRAM_TIMEOUT_S)
        # `env -C` changes the directory as the user; subprocess's cwd would change it as root.
        argv = ["env", "-C", self.path / (cwd or "."), *argv]
        return as_user(self.uid, argv, job=self.job, env=env, **options)

    def run(self, *argv, **options):
        """Runs a program like try_run(), and asserts that it succeeds; returns its output."""
        result = self.try_run(*argv, **options)
        words = " ".join(str(word) for word in argv)
        assert result.returncode == 0, (f"{words} in {self.path} as {self.uid}: exit "
                                        f"{result.returncode}\n{result.stdout[-3000:]}"
                                        f"{result.stderr[-3000:]}")
        return result.stdout

    def python(self, function, *args, **options):
        """Calls workers.FUNCTION with these arguments in a new process of the place's user; returns its output."""
        workers = pathlib.Path(__file__).with_name("workers.py")
        return self.run("/usr/bin/python3", "-I", workers, function, *args, **options)

    def tree(self, below=".", **options):
        """Returns the result of tree() for a directory of the place. Root cannot read another user's view, so a process
        of the place's user reads it, with the capability to read files regardless of their modes."""
        if self.job is None or self.uid == 0:
            return tree(self.path / below, **options)
        here = pathlib.Path(__file__).parent
        code = ("import json, sys; sys.path[:0] = sys.argv[3:]; import places; "
                "print(json.dumps(places.tree(sys.argv[1], **json.loads(sys.argv[2]))))")
        caps = "+dac_override,+dac_read_search"
        result = subprocess.run(
            ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups",
             f"--inh-caps={caps}", f"--ambient-caps={caps}", "/usr/bin/python3", "-B", "-c", code,
             self.path / below, json.dumps(options), here, here.parent / "lib"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(self.job), timeout=PROGRAM_TIMEOUT_S, check=False)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


def tree(top, times=True, skip=()):
    """Returns {path: properties} for every path below `top`, with all properties that a copy must preserve. The hard
    links to one file all have the same name in "same file as".

    The process must be able to read all files. Leaves out the names in `skip`, and everything below them.
    """
    found, numbers = {}, {}
    for directory, directories, files in os.walk(top, onerror=_fail):
        directories[:] = sorted(name for name in directories if name not in skip)
        for name in directories + sorted(set(files) - set(skip)):
            path = os.path.join(directory, name)
            found[os.path.relpath(path, top)] = describe(path, times, numbers)
    return found


def _fail(error):
    raise error


def describe(path, times, numbers):
    st = os.lstat(path)
    seen = {"mode": stat.filemode(st.st_mode)}
    if times:
        seen["mtime_ns"] = st.st_mtime_ns
    if stat.S_ISLNK(st.st_mode):
        seen["target"] = os.readlink(path)
    elif stat.S_ISREG(st.st_mode):
        seen["size"] = st.st_size
        seen["sha256"] = digest(path)
        seen["sparse"] = st.st_blocks * 512 < st.st_size // 2
    if not stat.S_ISDIR(st.st_mode) and st.st_nlink > 1:
        seen["links"] = st.st_nlink
        seen["same file as"] = numbers.setdefault(st.st_ino, path.rpartition("/")[2])
    return seen


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(native, view):
    """Returns the differences between two trees, one line per path."""
    return [f"{path}: native {native.get(path)}, view {view.get(path)}"
            for path in sorted(native.keys() | view.keys()) if native.get(path) != view.get(path)]


def assert_equal_trees(native, view):
    lines = differences(native, view)
    assert not lines, f"{len(lines)} paths differ:\n" + "\n".join(lines[:20])
