# SPDX-License-Identifier: Apache-2.0
"""How the checks of a suite ended natively and through cacheshim, and what differs."""

import json

PASSED = ("ok", "passed")
SKIPPED = ("skipped", None)  # many suites decide by the file system's type what they run


def assert_as_natively(native, ours, known, report):
    """Fails if a check that passes natively fails here.

    `native` and `ours` map a check to how it ended; `known` maps those that are known to fail to the
    reason. A known one that passes fails too, so that `known` stays true.
    """
    report.write_text(json.dumps({"native": native, "ours": ours}, indent=1, sort_keys=True))
    failing = {check: way for check, way in ours.items()
               if way not in PASSED + SKIPPED and native.get(check) in PASSED}
    unexpected = {check: way for check, way in failing.items() if check not in known}
    assert not unexpected, (f"{len(unexpected)} of {len(ours)} checks pass natively and fail here: "
                            f"{unexpected}")
    cured = [check for check in known if ours.get(check) in PASSED]
    assert not cured, f"these pass now, take them out of the known ones: {cured}"
