# SPDX-License-Identifier: Apache-2.0
"""The tests of filelock whose results on lock files shared by all jobs differ from native ones (docs/locks.md, "Lock
files").

Lists them by module, without the prefix "test_", and without parameters if those do not matter. Each differs in all
versions that have it, or with "@N" in all N.x.
"""

# A shared lock file has mode 0666, whatever mode its creator requests.
MODE = {
    "test_default_mode": """
        default_mode_respects_umask""",
    "test_filelock": """
        contender_preserves_holder_mode lock_mode_soft@3""",
    "test_util": """
        writability_allows_creation_after_marker_disappears writability_rejects_denied_marker""",
}


def is_known(name, version):
    """Returns whether the test "tests.MODULE.test_NAME[PARAMETERS]" of this version is one of them."""
    base, bracket, parameters = name.partition("[")
    module, _, test = base.removeprefix("tests.").rpartition(".")
    test = test.removeprefix("test_")
    known = MODE.get(module, "").split()
    major = version.partition(".")[0]
    return any(one in known for one in (test, test + bracket + parameters, f"{test}@{major}"))
