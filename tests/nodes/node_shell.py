# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that tests send to a node. Each connection is one command (frames.py)."""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import traceback

import frames

_PIECE = 1 << 16


def serve(listener):
    """Accepts connections, and forks a process for each. Never returns. Call this in the node's first process, because
    this function also reaps the orphans of all commands."""
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            status = 1
            try:
                listener.close()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _handle(connection)
                status = 0
            except (ConnectionError, EOFError):
                pass  # the test has closed the connection
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(status)
        connection.close()


def _reap(_signal, _frame):
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _handle(connection):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    reader = frames.Reader(connection)
    _, data = reader.read()
    try:
        child = _start(**json.loads(data))
    except OSError as error:
        frames.send(connection, frames.ERROR, f"cannot start the command: {error}\n".encode())
        frames.send(connection, frames.EXIT, b"127")
        return
    try:
        _relay(connection, reader, child)
    finally:
        # Kill the process group, because a shell's children would otherwise survive. If the command has exited, kill
        # nothing: it left the remaining processes of the group behind on purpose, such as daemons.
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _start(argv, env, uid, cwd):
    # Python uses vfork() only without these options. On a busy machine, a command of root then takes 150 ms instead of
    # 250 ms.
    identity = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                            cwd=cwd, umask=0o022, start_new_session=True, **identity)


def _relay(connection, reader, child):
    """Copies data between the connection and the command's streams until the command exits. Does not wait for the end
    of the output, because a daemon that the command has started may keep the streams open."""
    streams = {child.stdout: frames.OUTPUT, child.stderr: frames.ERROR}
    exited = os.pidfd_open(child.pid)
    with selectors.DefaultSelector() as selector:
        for source in (connection, exited, *streams):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if exited in ready:
                break
            if connection in ready:
                _pass_input(reader, child.stdin)
            for stream in ready & streams.keys():
                piece = os.read(stream.fileno(), _PIECE)
                if piece:
                    frames.send(connection, streams[stream], piece)
                else:
                    selector.unregister(stream)
    code = child.wait()
    for stream, kind in streams.items():
        _send_rest(connection, stream, kind)
    frames.send(connection, frames.EXIT, str(code).encode())


def _pass_input(reader, stdin):
    _, data = reader.read()
    with contextlib.suppress(BrokenPipeError, ValueError):  # the command has closed its standard input
        if data:
            stdin.write(data)
            stdin.flush()
        else:
            stdin.close()


def _send_rest(connection, stream, kind):
    os.set_blocking(stream.fileno(), False)
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(stream.fileno(), _PIECE):
            frames.send(connection, kind, piece)
