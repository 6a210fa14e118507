# SPDX-License-Identifier: Apache-2.0
"""Runs commands of suites with a timeout, and leaves no process behind."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile

TIMED_OUT = None
CLEANUP_TIMEOUT_S = 20


def descendants(pid):
    """Returns the descendants of a process."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has exited meanwhile
            parent = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found[1:]


def end_descendants(pid):
    for one in descendants(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def run(words, timeout_s, **options):
    """Runs a command; returns its exit status, or TIMED_OUT, and its output. Kills the processes that remain in the
    command's process group, and after a timeout all its descendants."""
    with tempfile.TemporaryFile() as output:  # not a pipe: processes that the command leaves behind would keep it open
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True, **options)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = TIMED_OUT
            process.send_signal(signal.SIGINT)  # on SIGINT, LTP frees its devices and pytest writes its report
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(CLEANUP_TIMEOUT_S)
            end_descendants(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")
