# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of single flight."""

import select

from jobs import wait_until

NAME = "stub.so"  # of class flight; completes its entry if it is the entry's only file
KEY = "triton/KEY"


def look(process, key=KEY):
    return process("create_and_look_up", process.path(key), NAME)


def start_look(process, key=KEY):
    process.start("create_and_look_up", process.path(key), NAME)


def build(process, key=KEY):
    process("triton_put", process.path(key), NAME, b"built")


def wait_for_waits(mount, count):
    wait_until(lambda: mount.stats()["flight_waits"] >= count, what=f"{count} waits")


def results_as_they_come(processes):
    """Yields (process, result) for the call that each process has started, in the order in which the calls return."""
    waiting = {process.stdout_fd: process for process in processes}
    while waiting:
        ready = select.select(list(waiting), [], [], 60)[0]
        assert ready, f"{len(waiting)} wait on"
        for fd in ready:
            process = waiting.pop(fd)
            yield process, process.result()
