# SPDX-License-Identifier: Apache-2.0
"""The common part of each family's user.py.

A user.py calls run() with its steps: names, each with a function that gets one result through the cache and
checks it. The steps begin when a line comes on stdin, after READY is printed, so that users start together. REPORT with a
JSON object is printed at the end: the names of steps that came right, those of them during which nobody has built anything
(hits, if no other user runs), and the errors of the others. The process then
stays until stdin is closed, as a job goes on to its real work: its exit must not be what releases those who
wait for its builds.

With FAMILY_FAILS a user also asks for a result that cannot be built: the step `broken`.
Each build is noted when it begins, as a line of the file FAMILY_BUILDS.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

Step = Callable[[], None]


def note_build(name: str) -> None:
    # One short write to a file opened for appending: lines of several writers do not mix.
    fd = os.open(os.environ["FAMILY_BUILDS"], os.O_WRONLY | os.O_APPEND)
    os.write(fd, f"{name}\n".encode())
    os.close(fd)


def noted_bytes() -> int:
    return os.stat(os.environ["FAMILY_BUILDS"]).st_size


def run(steps: dict[str, Step], broken: Step) -> None:
    if "FAMILY_FAILS" in os.environ:
        steps = {"broken": broken, **steps}
    print("READY", flush=True)
    sys.stdin.readline()
    right, hits, errors = [], [], {}
    for name, step in steps.items():
        before = noted_bytes()
        try:
            step()
            right.append(name)
            hits += [name] if noted_bytes() == before else []
        except Exception as error:  # every kind is a finding, and the next step is tried
            errors[name] = f"{type(error).__name__}: {error}"[-2000:]
    print("REPORT " + json.dumps({"right": right, "hits": hits, "errors": errors}), flush=True)
    sys.stdin.read()
