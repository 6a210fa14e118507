# SPDX-License-Identifier: Apache-2.0
"""Compares the results of a suite's checks natively and through cacheshim."""

import json

import mounts

RESULTS = mounts.REPOSITORY / "build/results/suites"
PASSED = ("ok", "passed")
SKIPPED = ("skipped", None)  # never a difference, because many suites choose their tests by the type of the file system


def differences(name, native, ours, known):
    """Returns the differences as sentences: checks that pass natively and fail through cacheshim, unless they are
    known. Writes all results to RESULTS/NAME.json.

    `native` and `ours` map each check to its result. `known` maps a prefix of checks' names to the reason for their
    failure. If all checks with a prefix pass, that is a difference too, so that `known` stays up to date.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(
        json.dumps({"native": native, "ours": ours}, indent=1, sort_keys=True))
    failing = {check: way for check, way in ours.items() if way not in PASSED + SKIPPED}
    unexpected = {check: way for check, way in failing.items()
                  if native.get(check) in PASSED and not check.startswith(tuple(known))}
    passing = [check for check, way in ours.items() if way in PASSED]
    cured = [beginning for beginning in known
             if any(check.startswith(beginning) for check in passing)
             and not any(check.startswith(beginning) for check in failing)]
    found = []
    if unexpected:
        found.append(f"{name}: {len(unexpected)} of {len(ours)} checks pass natively and fail here: "
                     f"{unexpected}")
    if cured:
        found.append(f"{name}: these pass now, take them out of the known ones: {cured}")
    return found


def assert_as_natively(name, native, ours, known):
    found = differences(name, native, ours, known)
    assert not found, found
