# SPDX-License-Identifier: Apache-2.0
"""A node: a machine with its own kernel. It is a user-mode-linux process, and its root directory shows the host's files
(node_main.py)."""

import json
import pathlib
import shutil
import socket
import time
import weakref

import remote

PYTHON = "/usr/bin/python3"  # a Python that every user can run
BOOT_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
COMMAND_TIMEOUT_S = 60
PORT = 7000

_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp",
                "LANG": "C.UTF-8"}


class Node:
    """One node. `description` contains the settings for node_main.py; `work` is a directory for the node's own
    files."""

    def __init__(self, net, work, tap, memory, description):
        self.name, self.description = description["name"], description
        self._net, self._work, self._tap, self._memory = net, work, tap, memory
        self._address = description["hosts"][self.name]
        self._machine = None
        self._console_start = 0
        self._connections = weakref.WeakSet()
        work.mkdir(parents=True, exist_ok=True)
        (work / "description.json").write_text(json.dumps({**description, "port": PORT}))

    def boot(self):
        """Starts the node, also after kill() or stop(). Does not wait; wait_until_booted() does."""
        shutil.rmtree(self._work / "uml", ignore_errors=True)
        log = self._work / "console.log"
        self._console_start = log.stat().st_size if log.exists() else 0
        # Without setarch -R, the kernel adds a random amount of address space, up to 1 GiB, to the node's memory.
        self._machine = self._net.start(
            ["setarch", "-R", "linux.uml", f"mem={self._memory}", "root=/dev/root", "rootfstype=hostfs",
             "rootflags=/", "ro", f"uml_dir={self._work}/uml/", f"umid={self.name}", "con=null",
             "con0=null,fd:1", "ssl=null", f"vec0:transport=tap,ifname={self._tap}", f"init={PYTHON}", "--",
             "-B", pathlib.Path(__file__).with_name("node_main.py"), self._work / "description.json"],
            log)

    def wait_until_booted(self, timeout=BOOT_TIMEOUT_S):
        """Returns when the node accepts commands; it does so after it has mounted the export."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._connect(1).close()
                return
            except OSError:
                if not self._machine.is_running() or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} does not boot:\n{self.console()[-4000:]}") from None
                time.sleep(0.1)

    def start(self, command, uid=0, env=None, cwd="/"):
        """Starts a command: a list of words, or text for bash. The command runs as user `uid`, with `uid` as its only
        group. `env` adds variables to a minimal environment. The node kills the command when the returned Command is no
        longer referenced."""
        argv = ["bash", "-c", command] if isinstance(command, str) else [str(word) for word in command]
        return remote.Command(self._connect(10), argv, uid, {**_ENVIRONMENT, **(env or {})}, str(cwd))

    def run(self, command, uid=0, env=None, cwd="/", stdin="", timeout=COMMAND_TIMEOUT_S, check=False):
        """Runs a command as start() does, and returns a subprocess.CompletedProcess. Several threads can run commands
        at the same time. Kills the command and raises subprocess.TimeoutExpired if it takes too long. `stdin` must be
        short enough to fit into a pipe."""
        started = self.start(command, uid, env, cwd)
        try:
            started.write(stdin)
            started.close_input()
            result = started.wait(timeout)
        finally:
            started.kill()
        if check and result.returncode:
            raise AssertionError(f"{self.name}: {command}: {result.returncode}: {result.stdout}{result.stderr}")
        return result

    def python(self, code, *words, **options):
        """Runs Python code on the node as run() does, and returns its standard output without the last newline. Raises
        an AssertionError if the code fails."""
        return self.run([PYTHON, "-c", code, *words], check=True, **options).stdout.rstrip("\n")

    def kill(self):
        """Ends the node as a power cut does: the node writes nothing back, and does not notify the server. Running
        commands raise ConnectionError."""
        if self._machine:
            self._machine.kill()
        self._end_connections()

    def stop(self):
        """Ends all processes of the node, unmounts the export, and powers off."""
        command = self.start("kill -TERM 1")  # returns no result, because the node also ends this command
        deadline = time.monotonic() + STOP_TIMEOUT_S
        # About 1 of 20 halted kernels did not exit. A halted kernel does no more work, so kill() loses nothing.
        while self.is_running() and "System halted" not in self.console():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not stop:\n{self.console()[-4000:]}")
            time.sleep(0.05)
        command.kill()
        self.kill()

    def is_running(self):
        return self._machine is not None and self._machine.is_running()

    def console(self):
        """Returns what the node's kernel and its first process have printed since boot()."""
        return (self._work / "console.log").read_bytes()[self._console_start:].decode(errors="replace")

    def _connect(self, timeout):
        connection = self._net.new_socket()
        try:
            connection.settimeout(timeout)
            connection.connect((self._address, PORT))
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            connection.close()
            raise
        self._connections.add(connection)
        return connection

    def _end_connections(self):
        # A dead node sends no more messages, so a thread that waits for one would wait forever.
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed already
