# SPDX-License-Identifier: Apache-2.0
"""Mounts stores and overlays for tests, and removes the mounts even if a test fails."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("CACHESHIM_BIN", str(REPOSITORY / "build/dist/bin/cacheshim"))
LIBRARY = os.environ.get("CACHESHIM_LIB", str(REPOSITORY / "build/dist/lib/libcacheshim.so"))
COMMAND_TIMEOUT_S = 60
COUNTS_TIMEOUT_S = 5

_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 0x40000


def enter_private_mount_namespace():
    """Moves this process to a new mount namespace, so that its mounts are invisible to other processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "cannot make a private mount namespace (run as root)")


def let_everybody_mount(scratch):
    """Binds a device with mode 0666, as udev creates it, over /dev/fuse. Call in a private mount namespace."""
    node = scratch / "fuse"
    os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(10, 229))
    node.chmod(0o666)
    subprocess.run(["mount", "--bind", node, "/dev/fuse"], check=True)


def mount_ext4(image, point, mib, *mkfs_options):
    """Makes a file system of `mib` MiB in a new sparse file, and mounts it."""
    with open(image, "wb") as file:
        file.truncate(mib << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", *mkfs_options, image], check=True)
    point.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, point], check=True)


def run(*argv, timeout=COMMAND_TIMEOUT_S, env=None, **options):
    """Runs a command without this process's CACHESHIM_* variables, and captures its output as text."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CACHESHIM_")}
    return subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=timeout, env={**clean, **(env or {})}, **options)


@contextlib.contextmanager
def setting(path, value):
    """Changes a file of /proc/sys or /sys for the duration of the block."""
    file = pathlib.Path(path)
    before = file.read_text()
    file.write_text(value)
    try:
        yield
    finally:
        file.write_text(before)


def is_mounted(path):
    return times_mounted(path) > 0


def times_mounted(path):
    return mount_points().count(str(path))


def mount_points():
    """Returns the paths of all mounts. The kernel escapes blanks, newlines and backslashes as \\OOO."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        return [re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), line.split()[4]) for line in table]


def processes_naming(text):
    """Yields the pids of the processes whose command line contains `text`, for example the path of a scratch
    directory."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if text.encode() in (entry / "cmdline").read_bytes():
                    yield int(entry.name)
            except OSError:
                pass  # the process has exited


def kill_all(text, number):
    for pid in processes_naming(text):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def free(scratch):
    """Unmounts everything below `scratch`, and kills the processes whose command line still names it."""
    for point in reversed(mount_points()):
        if point.startswith(f"{scratch}/"):
            subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL, check=False)
    if "GCOV_PREFIX" in os.environ:  # a program built for coverage writes its counts when it exits
        kill_all(f"{scratch}/", signal.SIGTERM)
        deadline = time.monotonic() + COUNTS_TIMEOUT_S
        while any(processes_naming(f"{scratch}/")) and time.monotonic() < deadline:
            time.sleep(0.02)
    kill_all(f"{scratch}/", signal.SIGKILL)


def remove_run_directories(scratch):
    """Removes the run directories of this test's killed daemons; a daemon that exits normally removes its own.

    First unmounts the base, which may still be bound in a run directory, so that the base's files are not removed.
    """
    escaped = str(scratch).strip("/").replace("-", "\\x2d").replace("/", "-")
    top = pathlib.Path("/run/cacheshim")
    for directory in top.iterdir() if top.is_dir() else ():
        if directory.name.startswith(f"{escaped}-"):
            if not directory.is_dir():
                directory.unlink(missing_ok=True)  # the record of a closed mount
                continue
            subprocess.run(["umount", "-l", directory / "base"], stderr=subprocess.DEVNULL, check=False)
            if not is_mounted(directory / "base"):
                shutil.rmtree(directory, ignore_errors=True)


def remove(scratch):
    free(scratch)
    remove_run_directories(scratch)
    with open("/proc/self/mountinfo", encoding="utf-8") as table:
        if not any(line.split()[4].startswith(f"{scratch}/") for line in table):
            shutil.rmtree(scratch, ignore_errors=True)


class Watchdog:
    """A process that unmounts and removes the scratch directory when pytest has ended, even if pytest was killed."""

    def __init__(self, scratch):
        code = ("import sys; sys.path.insert(0, sys.argv[1]); import mounts; "
                "sys.stdin.read(); mounts.remove(bytes.fromhex(sys.argv[2]).decode())")
        self._child = subprocess.Popen(
            [sys.executable, "-c", code, str(pathlib.Path(__file__).parent),
             # Encoded, because free() kills every process whose command line names the directory
             str(scratch).encode().hex()],
            stdin=subprocess.PIPE, start_new_session=True)

    def close(self):
        self._child.stdin.close()
        self._child.wait(30)


def run_mounting(argv, log):
    """Runs a command that mounts. Its output goes to a file, because the daemon may keep stderr open, and reading a
    pipe would then never end."""
    with open(log, "w+", encoding="utf-8") as file:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CACHESHIM_")}
        code = subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=file,
                              stderr=file, env=clean, timeout=COMMAND_TIMEOUT_S,
                              check=False).returncode
        file.seek(0)
        return subprocess.CompletedProcess(argv, code, "", file.read())


def limit_of(mount, name):
    """Returns the object that `status --json` prints for the limit `name`."""
    return next(one for one in mount.status()["limits"] if one["limit"] == name)


class Overlay:
    """A plain overlay over its own directories: `lowers` (the first on top), `upper`, `work`."""

    def __init__(self, scratch, lowers=1):
        self.path = scratch / "overlay"
        self.upper, self.work = scratch / "upper", scratch / "work"
        self.lowers = [scratch / f"lower{number}" for number in range(lowers)]
        for directory in (self.path, self.upper, self.work, *self.lowers):
            directory.mkdir()

    def directories(self):
        lowers = ":".join(str(lower) for lower in self.lowers)
        return f"lowerdir={lowers},upperdir={self.upper},workdir={self.work}"

    def try_mount(self, *options, directories=None):
        words = ",".join([self.directories() if directories is None else directories, *options])
        return run_mounting([PROGRAM, "overlay", "-o", words, self.path],
                            self.path.with_name("overlay.log"))

    def mount(self, *options, directories=None):
        result = self.try_mount(*options, directories=directories)
        assert result.returncode == 0, f"mount failed: {result.stderr}"
        return self

    def unmount(self):
        return run(PROGRAM, "unmount", self.path)

    def close(self):
        while is_mounted(self.path):
            run("umount", "-l", self.path)


class Mount:
    """One mounted store. close() unmounts it."""

    def __init__(self, store, point):
        self.store, self.path = pathlib.Path(store), pathlib.Path(point)
        self.log = self.path.with_name(self.path.name + ".log")

    def mount(self, *options):
        result = self.try_mount(*options)
        assert result.returncode == 0, f"mount failed: {result.stderr}"
        return self

    def try_mount(self, *options):
        return run_mounting([PROGRAM, "mount", "--store", self.store, *options, self.path], self.log)

    def unmount(self):
        return run(PROGRAM, "unmount", self.path)

    def cli(self, *argv, check=True):
        """Runs `cacheshim ARGV --mount PATH` for this mount; asserts that it succeeds, unless `check` is false."""
        result = run(PROGRAM, *argv, "--mount", self.path)
        if check:
            assert result.returncode == 0, f"{argv}: {result.returncode}: {result.stderr}"
        return result

    def stats(self):
        return json.loads(self.cli("stats", "--json").stdout)

    def status(self):
        return json.loads((self.path / ".cacheshim/status").read_text())

    def answer(self, request):
        """Sends a control request, an object or its text, and returns the lines of the answer. Raises OSError if the
        daemon refuses the text."""
        text = json.dumps(request) if isinstance(request, dict) else request
        with open(self.path / ".cacheshim/control", "r+b", buffering=0) as control:
            control.write(text if isinstance(text, bytes) else text.encode())
            return control.readall().splitlines()

    def ask(self, **request):
        """Sends a control request as root, and returns the last line of the answer, which follows the lines of
        progress."""
        return json.loads(self.answer(request)[-1])

    def daemon_pid(self):
        return self.status()["pid"]

    def kill_daemon(self, how=signal.SIGKILL):
        """Sends SIGKILL to the daemon, to simulate a crash, or the signal `how`; returns when the daemon has exited.
        Fails if that takes longer than 20 s."""
        pid = self.daemon_pid()
        handle = os.pidfd_open(pid)
        signal.pidfd_send_signal(handle, how)
        with os.fdopen(handle) as file:
            assert select.select([file], [], [], 20)[0], f"the daemon {pid} does not die"

    def detach(self):
        run("umount", "-l", self.path)

    def base(self, *parts):
        return self.store.joinpath(*parts)

    def uppers(self, job):
        """Returns the upper directories of a job's layers."""
        return sorted((self.store / ".cacheshim/layers" / job).glob("*/upper"))

    def layer_files(self, job):
        """Returns the files in a job's layers, by path below the view."""
        return {str(path.relative_to(upper)): path.read_bytes() for upper in self.uppers(job)
                for path in upper.rglob("*") if path.is_file() and not path.is_symlink()}

    def layer_names(self, job):
        """Returns all names of files in a job's layers, including whiteouts."""
        return sorted(str(path.relative_to(upper)) for upper in self.uppers(job)
                      for path in upper.rglob("*") if not path.is_dir())

    def end_job(self, job, outcome="success"):
        return self.cli("job", "end", job, f"--{outcome}")

    def job(self, job):
        """Returns the daemon's information about a job."""
        return json.loads((self.path / ".cacheshim/jobs" / job).read_text())

    def run_directory(self):
        return pathlib.Path(self.status()["run_dir"])

    def close(self):
        if is_mounted(self.path):
            self.detach()
