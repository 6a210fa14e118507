# SPDX-License-Identifier: Apache-2.0
"""Tests each profile with its real program, or with a replay if the program needs a GPU: four users at once, a later
user, a killed builder, and a failing build, each natively and through cacheshim."""

import contextlib
import json
import os
import pathlib

import pytest
from crowd import STEPS_TIMEOUT_S, Crowd
from family import MountedPlace, NativePlace
from jobs import wait_until

USERS = 4
RESULTS = os.environ.get("CACHESHIM_FAMILIES")  # the directory for the figures of the table

pytestmark = pytest.mark.timeout_s(900)


@pytest.fixture
def crowds(family, scratch, mount_store, library, server):
    """crowds(kind) yields a Crowd with an empty cache, in a plain directory ("native") or on a mount ("cacheshim")."""
    made = []

    @contextlib.contextmanager
    def make(kind):
        place_scratch = scratch / f"{kind}{len(made)}"
        place_scratch.mkdir()
        if kind == "native":
            place = NativePlace(place_scratch)
        else:
            store = place_scratch / "store"
            store.mkdir()
            place = MountedPlace(mount_store(store), str(library))
        crowd = Crowd(family, place, place_scratch, {server.VARIABLE: server.url} if server else {})
        if server:
            server.builds_log = crowd.builds_log
        made.append(crowd)
        try:
            yield crowd
        finally:
            crowd.close()

    yield make


def count_errors(reports):
    return sum(len(report.errors) for report in reports)


def run_cold_and_later(crowd):
    cold = crowd.run(USERS)
    built = crowd.builds()
    later = crowd.run(1)
    return {"builds": built, "later_builds": crowd.builds() - built, "later_hits": len(later[0].hits),
            "later_errors": count_errors(later),
            "errors": count_errors(cold + later)}, cold + later


def run_after_a_kill(crowd):
    """Kills a user during its first build, then runs another user."""
    builder, = crowd.add(1)
    builder.start()
    wait_until(lambda: crowd.builds() > 0, seconds=STEPS_TIMEOUT_S, what="a build")
    builder.kill()
    after = crowd.run(1)
    return {"killed_errors": count_errors(after)}, after


def run_failing(crowd):
    """Runs users whose first step requests a result that cannot be built."""
    reports = crowd.run(USERS, fails=True)
    return {"failures": sum("broken" in report.errors for report in reports),
            "failing_errors": count_errors(reports) - USERS}, reports


def write_figures(family, figures):
    if RESULTS:
        title = family.title.format(version=family.version())
        path = pathlib.Path(RESULTS, f"{family.name}.json")
        known = {"title": title, "profile": family.profile, "steps": family.steps}
        path.write_text(json.dumps({**known, **figures}) + "\n")


def test_a_family_works_as_natively_or_better(family, crowds):
    figures = {}
    for kind in ("native", "cacheshim"):
        found = {}
        for scenario in (run_cold_and_later, run_after_a_kill, run_failing):
            with crowds(kind) as crowd:
                part, reports = scenario(crowd)
                assert crowd.flight_timeouts() == 0, scenario.__name__
                assert crowd.rejections() == 0, scenario.__name__
            found |= part
            if kind == "cacheshim":
                wrong = [report.errors for report in reports if set(report.errors) - {"broken"}]
                assert wrong == [], scenario.__name__
                assert all(len(report.right) == family.steps for report in reports)
        figures[kind] = found
    ours, native = figures["cacheshim"], figures["native"]
    write_figures(family, figures)
    assert ours["failures"] == USERS  # every user sees its own failure
    assert ours["builds"] <= family.most_builds
    assert ours["later_builds"] <= family.most_later_builds
    assert ours["later_builds"] <= native["later_builds"] or native["later_errors"] > 0
    assert ours["later_hits"] >= native["later_hits"]
