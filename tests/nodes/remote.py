# SPDX-License-Identifier: Apache-2.0
"""A command that runs on a node."""

import json
import subprocess
import time

import frames


class Command:
    """A running command. `connection` is a connection to node_shell.py on the node, where the command starts.

    Only one thread at a time may use a Command. A method that exceeds its timeout raises subprocess.TimeoutExpired and
    leaves the command running. A method raises ConnectionError if the node has died.
    """

    def __init__(self, connection, argv, uid, env, cwd):
        self.argv, self.returncode = argv, None
        self._connection, self._reader = connection, frames.Reader(connection)
        self._output, self._error = bytearray(), bytearray()
        frames.send(connection, frames.COMMAND, json.dumps(
            {"argv": argv, "uid": uid, "env": env, "cwd": cwd}).encode())

    def write(self, text):
        """Sends text to the command's standard input."""
        if text:
            frames.send(self._connection, frames.INPUT, text.encode())

    def close_input(self):
        frames.send(self._connection, frames.INPUT)

    def read_line(self, timeout=60):
        """Returns the next line of the standard output. If the command exits first, returns the incomplete last line,
        which may be empty. wait() does not return these lines again."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._output and self.returncode is None:
            self._receive(deadline, timeout)
        line, newline, rest = self._output.partition(b"\n")
        self._output = rest
        return (line + newline).decode(errors="replace")

    def wait(self, timeout=60):
        """Waits for the exit. Returns a subprocess.CompletedProcess with the output as text; the return code is -N if
        signal N has killed the command, and 127 if the command could not start."""
        deadline = time.monotonic() + timeout
        while self.returncode is None:
            self._receive(deadline, timeout)
        self._connection.close()
        return subprocess.CompletedProcess(self.argv, self.returncode, self._output.decode(errors="replace"),
                                           self._error.decode(errors="replace"))

    def kill(self):
        """Kills the command's process group. Does not wait for its end. Has no effect after the exit."""
        self._connection.close()

    def _receive(self, deadline, timeout):
        self._connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            kind, data = self._reader.read()
        except TimeoutError as error:
            raise subprocess.TimeoutExpired(self.argv, timeout, bytes(self._output), bytes(self._error)) from error
        except EOFError as error:
            raise ConnectionError(f"the node has ended the connection of {self.argv}") from error
        finally:
            self._connection.settimeout(None)
        if kind == frames.EXIT:
            self.returncode = int(data)
        else:
            (self._output if kind == frames.OUTPUT else self._error).extend(data)
