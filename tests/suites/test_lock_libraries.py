# SPDX-License-Identifier: Apache-2.0
"""The suites of Python's lock libraries in a view: each test ends as in a plain directory."""

import os
import pathlib
import subprocess
from xml.etree import ElementTree

import bounded
import mounts
import pytest
from outcomes import differences

PYTEST = mounts.REPOSITORY / "build/venv/suites/bin/python"
TEST_TIMEOUT_S = 60
SUITE_TIMEOUT_S = 1500
WAY_CHARACTERS = 300
LIBRARIES = ["filelock", "portalocker", "fasteners"]
FAMILIES = ("inductor", "unknown")  # with lock files of all jobs, and with a job's own
# Tests that end otherwise in a family, by the beginnings of their names, each with the reason.
MODE = "a lock file of all jobs has mode 0666, whatever chmod says (docs/locks.md)"
RENAMED = "a rename of a lock file, or onto its name, gives EXDEV (docs/locks.md)"
LINKED = "a link of a lock file gives EPERM (docs/locks.md)"
APPENDED = "writes go to the end, although O_APPEND has been cleared by F_SETFL"
KNOWN = {
    "inductor": {
        "tests.test_filelock.test_lock_mode_soft": MODE,
        "tests.test_default_mode.test_default_mode_respects_umask": MODE,
        "tests.test_lock_expiry.test_expired_lock_": RENAMED,
        "tests.test_soft_stale.test_stale_lock_": RENAMED,
        "tests.test_soft_stale.test_out_of_range_pid_self_heals_": RENAMED,
        "tests.test_soft_stale.test_unparseable_lock_evicted_": RENAMED,
        "tests.test_util.test_break_lock_file_": RENAMED,
        "portalocker_tests.test_multiprocess.test_temporary_lock_waiters_converge_on_current_inode[pid]": RENAMED,
        "portalocker_tests.test_pidfilelock.test_multiple_context_manager_entries": RENAMED,
        "portalocker_tests.test_pidfilelock.test_multiprocess_locking": RENAMED,
        "portalocker_tests.test_pidfilelock.test_pidfilelock_acquire_writes_pid": RENAMED,
        "portalocker_tests.test_pidfilelock.test_pidfilelock_context_manager_": RENAMED,
        "portalocker_tests.test_write_mode_semantics.test_binary_write_mode_positioned_writes": APPENDED,
        "portalocker_tests.test_write_mode_semantics.test_write_mode_positioned_writes": APPENDED,
    },
    "unknown": {
        "portalocker_tests.test_write_mode_semantics.test_binary_write_mode_positioned_writes": APPENDED,
        "portalocker_tests.test_write_mode_semantics.test_write_mode_positioned_writes": APPENDED,
    },
}
# The same for some versions alone, by the beginnings of their directories' names.
KNOWN_OF_VERSIONS = {
    ("inductor", "filelock-3"): {
        "tests.test_util.test_raise_on_not_writable_file_": MODE,
    },
    ("inductor", "filelock-4"): {
        "tests.test_async_soft_contracts.test_async_strict_publishes_a_held_claim": LINKED,
        "tests.test_filelock.test_contender_preserves_holder_mode": MODE,
        "tests.test_host_name_grammar.test_strict_soft_file_lock_reads_back_": LINKED,
        "tests.test_lock_expiry.test_async_expired_lock_is_broken": RENAMED,
        "tests.test_lock_expiry.test_expired_soft_lock_is_broken": RENAMED,
        "tests.test_marker_records.test_lease_ages_out_a_malformed_record": RENAMED,
        "tests.test_soft_lease.test_lease_does_not_expire_a_strict_holder": LINKED,
        "tests.test_soft_lease.test_lease_peer_takes_an_expired_claim": RENAMED,
        "tests.test_soft_lease.test_lease_reclaims_a_dead_": RENAMED,
        "tests.test_soft_lease.test_lease_self_heals_a_malformed_marker": RENAMED,
        "tests.test_soft_lease.test_lease_supersedes_a_live_holder_": RENAMED,
        "tests.test_soft_stale.test_recycled_pid_marker_self_heals": RENAMED,
        "tests.test_util.test_writability_": MODE,
        "tests.test_strict_soft": LINKED,
    },
}
# Those that are left out, by the beginnings of their names, each with the reason.
POLLED = "does not end in time: ten or twenty processes that poll a lock keep the daemon busy with looking for its holder"
LEFT_OUT = {
    "tests/test_reader_writer_lock.py::test_no_concurrent_": POLLED,
    "tests/test_reader_writer_lock.py::test_multi_": POLLED,
}


def known(top, family):
    found = dict(KNOWN[family])
    for (of_family, beginning), more in KNOWN_OF_VERSIONS.items():
        if of_family == family and top.name.startswith(beginning):
            found.update(more)
    return found


def checkouts():
    """Each version of each library is a test of its own; a library without any is one that is skipped."""
    top = pathlib.Path(os.environ.get("CACHESHIM_SUITES", "/nonexistent"))
    for library in LIBRARIES:
        found = sorted(path for path in top.glob(f"{library}*") if path.is_dir())
        yield from (pytest.param(path, id=path.name) for path in found)
        if not found:
            missing = pytest.mark.skip(reason=f"there is no {library} below CACHESHIM_SUITES")
            yield pytest.param(None, id=library, marks=missing)


def way_of(case):
    """How a test ended, by its element of the report."""
    for child in case:
        if child.tag == "skipped":
            return "skipped"
        if child.tag in ("failure", "error"):
            return f"{child.tag}: {child.get('message')}"[:WAY_CHARACTERS]
    return "passed"


def outcomes(top, directory, results, env):
    """How each test ended. The library is imported from the checkout itself."""
    directory.mkdir()
    tests = next(path for name in ("tests", "portalocker_tests") if (path := top / name).is_dir())
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{top / 'src'}:{top}", "HOME": str(directory),
           "TMPDIR": str(directory), "PYTHONDONTWRITEBYTECODE": "1", **env}
    # Before it ends it waits for processes that its tests have left: also where that times out there is a report.
    _, output = bounded.run(
        [PYTEST, "-m", "pytest", tests, "-q", "-p", "no:cacheprovider", "-o", "addopts=",
         *(f"--deselect={test}" for test in LEFT_OUT), f"--timeout={TEST_TIMEOUT_S}",
         f"--basetemp={directory / 't'}", f"--junitxml={results}"],
        SUITE_TIMEOUT_S, cwd=directory, env=env)
    assert results.exists(), f"{top} did not come to its end: {output[-6000:]}"
    found = {f"{case.get('classname')}.{case.get('name')}": way_of(case)
             for case in ElementTree.parse(results).iter("testcase")}
    results.unlink()
    return found, output[-6000:]


@pytest.mark.timeout_s((1 + len(FAMILIES)) * (SUITE_TIMEOUT_S + 30))
@pytest.mark.parametrize("top", list(checkouts()))
def test_each_test_ends_as_natively(mount, native, scratch, top):
    expected, output = outcomes(top, native / top.name, scratch / "native.xml", {})
    assert "passed" in expected.values(), f"{top} does not run natively: {output}"
    assert "KeyboardInterrupt" not in output, f"{top} takes longer than {SUITE_TIMEOUT_S} s natively: {output}"
    different = []
    for family in FAMILIES:
        directory = mount.path / ".jobs/suites" / family / top.name
        subprocess.run(["mkdir", "-p", directory.parent], check=True)
        found, _ = outcomes(top, directory, scratch / "ours.xml", {"CACHESHIM_JOB": "suites"})
        found = dict.fromkeys(expected, "did not run in time") | found
        different += differences(f"{top.name}-{family}", expected, found, known(top, family))
    assert not different, different
