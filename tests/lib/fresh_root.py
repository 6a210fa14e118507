# SPDX-License-Identifier: Apache-2.0
"""Simulates a fresh machine, on which each user runs the documents' commands in a shell."""

import fcntl
import os
import pathlib
import select
import subprocess
import time

COMMAND_TIMEOUT_S = 60
PATHS = {"root": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
USER_PATH = "/usr/local/bin:/usr/bin:/bin"

# Reads commands from descriptor 9, each terminated by a NUL byte, and writes their exit statuses to descriptor 8.
SHELL = """cd
while IFS= read -r -d '' -u 9 command; do
    eval "$command" 8>&- 9<&-
    echo "$?" >&8
done"""


def high_pipe():
    """Makes a pipe whose descriptor numbers are at least 20, so that they do not conflict with the shell's own."""
    low = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in low]
    for fd in low:
        os.close(fd)
    return high


class Ended:
    """The result of a command."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err


class Shell:
    """A bash that keeps running, so that later commands have the variables that earlier ones exported."""

    def __init__(self, enter, user, home, directory):
        self.user = user
        self._texts = [directory / f"{user}.{name}" for name in ("out", "err")]
        commands, self._commands = high_pipe()
        self._statuses, statuses = high_pipe()
        words = ["env", "-i", f"PATH={PATHS.get(user, USER_PATH)}", f"HOME={home}", f"USER={user}",
                 "LANG=C.UTF-8", "bash", "--norc", "-c", f"exec 8>&{statuses} 9<&{commands} "
                 f"{statuses}>&- {commands}<&-\n{SHELL}"]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]
        # Open for writing only: if stderr is a regular file that is also open for reading, the library assumes that it
        # contains a program's data, and prints no messages to it.
        out, err = (open(path, "a", encoding="utf-8") for path in self._texts)
        with out, err:
            self._process = subprocess.Popen([*enter, *become, *words], stdin=subprocess.DEVNULL,
                                             stdout=out, stderr=err, pass_fds=[commands, statuses])
        os.close(commands)
        os.close(statuses)

    def run(self, command, timeout=COMMAND_TIMEOUT_S):
        """Runs one command, waits for its end, and returns its status and output."""
        before = [len(path.read_text()) for path in self._texts]
        os.write(self._commands, command.encode() + b"\0")
        deadline = time.monotonic() + timeout
        told = b""
        while not told.endswith(b"\n"):
            left = max(deadline - time.monotonic(), 0)
            assert select.select([self._statuses], [], [], left)[0], \
                f"{self.user}: `{command}` has not ended after {timeout} s"
            piece = os.read(self._statuses, 64)
            assert piece, f"{self.user}: the shell ended in `{command}`"
            told += piece
        return Ended(int(told), *(path.read_text()[start:]
                                  for path, start in zip(self._texts, before)))

    def close(self):
        os.close(self._commands)
        self._process.wait(10)
        os.close(self._statuses)


class FreshRoot:
    """A fresh root, and a shell for each user in it. `script` creates the root: it gets an empty directory and `source`,
    prints "ready", and ends when its stdin is closed."""

    def __init__(self, scratch, script, source):
        self._directory = pathlib.Path(scratch)
        work = self._directory / "fresh-root"
        work.mkdir()
        self._process = subprocess.Popen([script, work, source], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        assert self._process.stdout.readline() == "ready\n", "there is no fresh root"
        children = pathlib.Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.first_process = children.read_text().split()[0]
        self._shells = {}

    def shell(self, user):
        """Returns the user's shell, which starts at the first call."""
        if user not in self._shells:
            home = "/root" if user == "root" else f"/home/{user}"
            enter = ["nsenter", f"--target={self.first_process}", "--mount", "--pid"]
            self._shells[user] = Shell(enter, user, home, self._directory)
        return self._shells[user]

    def close(self):
        """Kills all processes in the fresh root."""
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        for shell in self._shells.values():
            shell.close()
