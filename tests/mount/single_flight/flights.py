# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of single flight."""

import select

from jobs import wait_until

NAME = "stub.so"  # of class flight, and complete when it is its entry's only file
KEY = "triton/KEY"


def look(process, key=KEY):
    return process("begin_and_look", process.path(key), NAME)


def start_look(process, key=KEY):
    process.start("begin_and_look", process.path(key), NAME)


def build(process, key=KEY):
    process("triton_put", process.path(key), NAME, b"built")


def wait_for_waits(mount, count):
    wait_until(lambda: mount.stats()["flight_waits"] >= count, what=f"{count} waits")


def results_as_they_come(processes):
    """(process, result) of each call that was started, in the order of their ends."""
    waiting = {process.stdout_fd: process for process in processes}
    while waiting:
        ready = select.select(list(waiting), [], [], 60)[0]
        assert ready, f"{len(waiting)} wait on"
        for fd in ready:
            process = waiting.pop(fd)
            yield process, process.result()
