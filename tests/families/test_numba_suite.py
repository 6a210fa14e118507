# SPDX-License-Identifier: Apache-2.0
"""Runs Numba's own tests of its cache with the library preloaded, and compares the results with a native run.

The tests expect compiled files in the `__pycache__` beside the source, as users do.
"""

import json
import os

import pytest
from jobs import as_user
from loading import load

UID = 21050
SUITE_TIMEOUT_S = 600

pytestmark = [pytest.mark.long, pytest.mark.timeout_s(2 * SUITE_TIMEOUT_S + 60)]


def outcomes(home, env, job=None):
    home.mkdir()
    os.chown(home, UID, UID)
    numba = load("numba")
    done = as_user(UID, [numba.python, "-B", numba.directory / "own_tests.py"], job=job, cwd=home,
                   env={"HOME": str(home), "TMPDIR": str(home), **env}, timeout=SUITE_TIMEOUT_S)
    line = next((line for line in done.stdout.splitlines() if line.startswith("OUTCOMES ")), None)
    assert line, done.stderr[-3000:]
    return json.loads(line.removeprefix("OUTCOMES "))


def kinds(found):
    """Returns each result ("ok", "failed" or "skipped") without its text, which may contain a path."""
    return {name: outcome.partition(":")[0] for name, outcome in found.items()}


def test_numbas_own_tests_end_as_natively(scratch, mount_store, library):
    store = scratch / "store"
    store.mkdir()
    mount = mount_store(store)
    natively = outcomes(scratch / "native", {})
    preloaded = outcomes(scratch / "preloaded", {"LD_PRELOAD": str(library),
                                                 "CACHESHIM_MOUNT": str(mount.path)}, job="numba")
    assert len(natively) > 40
    assert kinds(preloaded) == kinds(natively), [
        (name, preloaded.get(name)) for name in natively if preloaded.get(name) != natively[name]]
