# SPDX-License-Identifier: Apache-2.0
"""A network namespace with a bridge, and the processes and sockets in it."""

import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import subprocess

BRIDGE_ADDRESS = "10.99.0.1"

_CLONE_NEWNET = 0x40000000


class Network:
    """A network namespace. It disappears when this process and the processes in it have ended."""

    def __init__(self):
        # One thread enters the namespace. Its sockets and its child processes are in the namespace; all other threads
        # of this process stay outside.
        self._inside = concurrent.futures.ThreadPoolExecutor(1)
        self._fd = self._inside.submit(_enter_new_namespace).result()
        self._ip("link", "set", "lo", "up")
        self._ip("link", "add", "bridge", "type", "bridge")
        self._ip("address", "add", f"{BRIDGE_ADDRESS}/24", "dev", "bridge")
        self._ip("link", "set", "bridge", "up")

    def add_tap(self, name):
        """Creates a tap device on the bridge."""
        self._ip("tuntap", "add", "dev", name, "mode", "tap")
        self._ip("link", "set", name, "master", "bridge", "up")

    def new_socket(self):
        """Returns a new TCP socket, which connects inside the namespace."""
        return self._inside.submit(socket.socket).result()

    def start(self, argv, log):
        """Starts a program in the namespace and returns its Machine. The output goes to the end of the file `log`.

        The machine dies with the calling thread, so call this in the main thread.
        """
        with open(log, "ab") as output:
            return Machine(subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", "nsenter", f"--net=/proc/self/fd/{self._fd}", "--",
                 "unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "--",
                 *[str(word) for word in argv]],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[self._fd]))

    def close(self):
        self._inside.shutdown()
        os.close(self._fd)

    def _ip(self, *words):
        self._inside.submit(subprocess.run, ["ip", *words], check=True).result()


class Machine:
    """A program that runs as the first process of its own mount and PID namespaces. Its children die with it."""

    # `process` is the unshare(1) that waits for the program.
    def __init__(self, process):
        self._process = process

    def is_running(self):
        return self._process.poll() is None

    def kill(self):
        """Kills all processes of the namespace, and returns when they have ended."""
        if self.is_running() and not self._signal(signal.SIGKILL):
            self._process.kill()  # unshare has not forked yet; if it forks now, --kill-child kills the child
        self._process.wait()

    def pause(self):
        """Stops the first process, with all its threads, until resume()."""
        self._signal(signal.SIGSTOP)

    def resume(self):
        self._signal(signal.SIGCONT)

    def _signal(self, number):
        pid = self._process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            with contextlib.suppress(ProcessLookupError):  # it has just exited
                os.kill(int(child), number)
        return bool(children)


def _enter_new_namespace():
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot make a network namespace (run as root)")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)
