# SPDX-License-Identifier: Apache-2.0
"""Processes that run as other users, and jobs that consist of such processes."""

import contextlib
import os
import pathlib
import pickle
import select
import signal
import struct
import subprocess
import time

PYTHON = "/usr/bin/python3"  # a Python that every user can run
CALL_TIMEOUT_S = 60
FEWEST_LOOKS = 20  # the fewest polls before wait_until() fails: a busy machine may pause this process for seconds


class JobHung(AssertionError):
    """A call did not return in time."""


def environment(job=None, extra=None):
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    if job is not None:
        env["CACHESHIM_JOB"] = job
    env.update(extra or {})
    return env


def as_user(uid, argv, job=None, env=None, timeout=CALL_TIMEOUT_S, **options):
    """Runs `argv` as `uid` with umask 022 and only the variables of environment(); its streams are text."""
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    options.setdefault("extra_groups", [])
    return subprocess.run([str(word) for word in argv], user=uid, group=uid, umask=0o022,
                          env=environment(job, env), timeout=timeout, text=True,
                          stdin=options.pop("stdin", subprocess.DEVNULL), **options)


def wait_until(condition, seconds=10, what="the condition"):
    """Polls until `condition` returns a true value, and returns it. Raises an AssertionError if that takes more than
    `seconds`."""
    deadline = time.monotonic() + seconds
    looks = 0
    while not (value := condition()):
        looks += 1
        if looks >= FEWEST_LOOKS and time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds} s")
        time.sleep(0.002)
    return value


def threads(pid):
    """Returns an iterator over the /proc directories of a process's threads. A thread may exit meanwhile."""
    return pathlib.Path(f"/proc/{pid}/task").iterdir()


def state_of(thread):
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


def waits_for_an_answer(thread):
    """Returns true if a thread waits for a FUSE daemon's answer, or for its vforked child, which may itself wait for
    such an answer."""
    return (thread / "wchan").read_text() in ("request_wait_answer", "kernel_clone")


def stop(pid):
    """Sends SIGSTOP, and waits until each thread has stopped, because a thread can answer a request before it stops. A
    thread that itself waits for a FUSE daemon's answer stops after that answer; the function does not wait for it."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(state_of(thread) == "T" or waits_for_an_answer(thread)
                           for thread in threads(pid)), what="a stop")


@contextlib.contextmanager
def standing_still(pid):
    try:
        stop(pid)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def open_files(pid):
    """Yields the names of the files that a process has open. The process may open and close files meanwhile."""
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(fd)


class Process:
    """One process of a job. `process("os.mkdir", path)` makes the call in that process."""

    def __init__(self, agent, uid, job, env=None, pid_namespace=False, cwd="/"):
        argv = [PYTHON, "-I", str(agent)]
        identity = {"user": uid, "group": uid, "extra_groups": []}
        if pid_namespace:
            argv = ["unshare", "--pid", "--fork", "--kill-child", "setpriv", f"--reuid={uid}",
                    f"--regid={uid}", "--clear-groups", "--", *argv]
            identity = {}
        self.uid, self.job = uid, job
        self._child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       env=environment(job, env), umask=0o022, cwd=cwd, **identity)

    @property
    def pid(self):
        return self._child.pid

    @property
    def stdout_fd(self):
        """The descriptor that becomes readable when a started call has ended."""
        return self._child.stdout.fileno()

    def start(self, name, *args, **kwargs):
        """Sends a call without waiting for its result."""
        data = pickle.dumps((name, args, kwargs))
        self._child.stdin.write(struct.pack("<I", len(data)) + data)
        self._child.stdin.flush()

    def result(self, timeout=CALL_TIMEOUT_S):
        """Returns the value of the call that start() sent; raises what the call raised."""
        deadline = time.monotonic() + timeout
        head = self._read(4, deadline)
        good, value = pickle.loads(self._read(struct.unpack("<I", head)[0], deadline))
        if not good:
            raise value
        return value

    def __call__(self, name, *args, **kwargs):
        self.start(name, *args, **kwargs)
        return self.result()

    def errno_of(self, name, *args):
        """Returns the errno with which the call fails; 0 if it succeeds."""
        try:
            self(name, *args)
        except OSError as error:
            return error.errno
        return 0

    def _read(self, count, deadline):
        data, fd = b"", self.stdout_fd
        while len(data) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise JobHung(f"a call of job {self.job} (uid {self.uid}) did not come back")
            piece = os.read(fd, count - len(data))
            if not piece:
                raise AssertionError(f"the process of job {self.job} ended: {self._child.wait(5)}")
            data += piece
        return data

    def kill(self):
        self._child.kill()
        self._child.wait(10)

    def close(self):
        if self._child.poll() is not None:
            return
        self._child.stdin.close()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()


class Job(Process):
    """A process that uses one mount as one job of one user, with short forms of common calls."""

    def __init__(self, mount, agent, uid, job, **options):
        super().__init__(agent, uid, job, **options)
        self.mount = pathlib.Path(mount)

    def path(self, *parts):
        """Returns a path below the mount point, as a program without the library names it."""
        return str(self.mount.joinpath(*parts))

    def view(self, *parts):
        return str(self.mount.joinpath(".jobs", self.job, *parts))

    def write(self, relative, data, **options):
        return self("write_file", self.path(relative), data, **options)

    def read(self, relative):
        return self("read_file", self.path(relative))

    def exists(self, relative):
        return self("os.path.lexists", self.path(relative))

    def listdir(self, relative):
        return sorted(self("os.listdir", self.path(relative)))

    def put(self, key, name, data):
        self("triton_put", self.path("triton", key), name, data)

    def put_group(self, key, files, kernel="kernel"):
        """Writes all files of an entry, its group file last; returns {name: data} of all of them."""
        for name, data in files.items():
            self.put(key, name, data)
        children = {name: self.path("triton", key, name) for name in files}
        group = f'{{"child_paths": {children}}}'.replace("'", '"').encode()
        self.put(key, f"__grp__{kernel}.json", group)
        return {**files, f"__grp__{kernel}.json": group}
