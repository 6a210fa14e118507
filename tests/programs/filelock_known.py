# SPDX-License-Identifier: Apache-2.0
"""The tests of filelock whose results in a view differ from native ones, because all jobs share the lock files
(docs/locks.md, "Lock files").

The names are without the prefix "test_", and without parameters if these do not matter. A test with "@N" differs only
in the versions N.x; any other test differs in all versions that have it.
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
    """Returns true if the test `name`, "tests.MODULE.test_NAME[PARAMETERS]", is known to differ in this version."""
    base, bracket, parameters = name.partition("[")
    module, _, test = base.removeprefix("tests.").rpartition(".")
    test = test.removeprefix("test_")
    known = MODE.get(module, "").split()
    major = version.partition(".")[0]
    return any(one in known for one in (test, test + bracket + parameters, f"{test}@{major}"))
