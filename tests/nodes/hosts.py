# SPDX-License-Identifier: Apache-2.0
"""Machines that share this machine's kernel. Each has its own mount, UTS and PID namespaces, in which a file system's
client and a daemon run. They suffice for file systems whose client is a program, such as JuiceFS."""

import os
import subprocess
import threading

COMMAND_TIMEOUT_S = 60


class Host:
    """A machine, which dies with this process. run() and start() work as in node.Node, but with fewer options."""

    def __init__(self, name):
        self.name = name
        self._first = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child",
             "--mount-proc", "--propagation", "private", "--", "bash", "-c",
             f"hostname {name} && echo started && exec sleep infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self._first.stdout.readline() == "started\n"
        children = f"/proc/{self._first.pid}/task/{self._first.pid}/children"
        with open(children, encoding="utf-8") as file:
            self._pid = file.read().split()[0]

    def _argv(self, command, uid):
        words = ["bash", "-c", command] if isinstance(command, str) else [str(word) for word in command]
        user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"] if uid else []
        return ["nsenter", f"--target={self._pid}", "--mount", "--uts", "--pid", "--", *user, *words]

    def start(self, command, uid=0, env=None):
        process = subprocess.Popen(self._argv(command, uid), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True,
                                   env={"PATH": os.environ["PATH"], "HOME": "/tmp", "LANG": "C.UTF-8", **(env or {})})
        return Command(process)

    def run(self, command, uid=0, env=None, timeout=COMMAND_TIMEOUT_S, check=False):
        result = self.start(command, uid, env).wait(timeout)
        if check and result.returncode:
            raise AssertionError(f"{self.name}: {command}: {result.returncode}: {result.stdout}{result.stderr}")
        return result

    def is_running(self):
        return self._first.poll() is None

    def kill(self):
        """Kills all processes of the machine."""
        self._first.kill()
        self._first.wait()


class Command:
    """A running command. Threads read its output from the beginning, because a daemon that the command starts may keep
    the pipes open."""

    def __init__(self, process):
        self._process, self._texts = process, {}
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True)
                         for name in ("stdout", "stderr")]
        for reader in self._readers:
            reader.start()

    def _read(self, name):
        self._texts[name] = ""
        for line in getattr(self._process, name):
            self._texts[name] += line

    def wait(self, timeout):
        code = self._process.wait(timeout)
        for reader in self._readers:
            reader.join(1)
        return subprocess.CompletedProcess(self._process.args, code, self._texts["stdout"], self._texts["stderr"])
