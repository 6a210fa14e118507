# SPDX-License-Identifier: Apache-2.0
"""How the checks of a suite ended natively and through cacheshim, and what differs."""

import json

import mounts

RESULTS = mounts.REPOSITORY / "build/results/suites"
PASSED = ("ok", "passed")
SKIPPED = ("skipped", None)  # many suites decide by the file system's type what they run


def differences(name, native, ours, known):
    """What differs, as sentences: checks that pass natively and fail here. Writes all outcomes to RESULTS/NAME.json.

    `native` and `ours` map a check to how it ended; `known` maps beginnings of the names of those that are known
    to fail to the reason. One whose checks all pass counts too, so that `known` stays true.
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
