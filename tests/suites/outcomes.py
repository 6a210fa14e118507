# SPDX-License-Identifier: Apache-2.0
"""How the checks of a suite ended natively and through cacheshim, and what differs."""

import json


def assert_as_natively(native, ours, known, report):
    """Both map a check to how it ended; so does `known`, with the reason, for documented differences.

    A check that a suite skips on one side alone is no difference: suites decide by the file system's type.
    """
    report.write_text(json.dumps({"native": native, "ours": ours}, indent=1, sort_keys=True))
    different = {check: (native.get(check), ours.get(check))
                 for check in native.keys() | ours.keys()
                 if native.get(check) != ours.get(check)
                 and "skipped" not in (native.get(check), ours.get(check))}
    unexpected = {check: ways for check, ways in different.items() if check not in known}
    assert not unexpected, (f"{len(unexpected)} of {len(ours)} checks end otherwise than natively "
                            f"(native, here): {unexpected}")
    vanished = [check for check in known if check in ours and check not in different]
    assert not vanished, f"these are no differences any more, take them out: {vanished}"
