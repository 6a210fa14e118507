# SPDX-License-Identifier: Apache-2.0
"""The common part of each family's user.py.

A user.py calls run() with its steps. Each step has a name, and a function that gets one result through the cache and
checks it. The process prints READY, and starts the first step when it reads a line from stdin, so that users start
together. At the end it prints REPORT with a JSON object: `right`, the steps that succeeded; `hits`, the successful
steps during which no user began a build; and `errors`, the errors of the failed steps. Then the process waits until
stdin is closed, because a real job also continues after its builds: other processes must not have to wait for its exit.

If FAMILY_FAILS is set, a user has one more step, `broken`, whose result cannot be built. Each build adds a line to the
file FAMILY_BUILDS when it begins.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

Step = Callable[[], None]


def note_build(name: str) -> None:
    # O_APPEND and a single write per line keep the lines of several writers apart.
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
        except Exception as error:  # record any error as the result of this step, and continue
            errors[name] = f"{type(error).__name__}: {error}"[-2000:]
    print("REPORT " + json.dumps({"right": right, "hits": hits, "errors": errors}), flush=True)
    sys.stdin.read()
