# SPDX-License-Identifier: Apache-2.0
"""Runs the program of tests/parity on a real mount: it makes the same calls in a plain directory and in a view, and
compares the results."""

import os
import random
import shutil

import mounts
import pytest
from jobs import as_user

PROGRAM = os.environ.get("CACHESHIM_PARITY", str(mounts.REPOSITORY / "build/tests/parity/parity"))
ROUNDS = int(os.environ.get("CACHESHIM_MODEL_ROUNDS", "20"))


@pytest.fixture
def parity(scratch, store, mount_store, request):
    """parity(uid, kind, directory, *options) prepares a plain directory and a base, mounts, and compares as that user;
    `kind` selects the kind of calls."""
    if not os.access(PROGRAM, os.X_OK):
        pytest.fail(f"no program at {PROGRAM}: build first, or set CACHESHIM_PARITY")

    def compare(uid, kind, directory, *options, env=None):
        native = scratch / "native"
        native.mkdir()
        os.chown(native, uid, uid)
        base = store / directory
        base.mkdir(parents=True)
        prepared = mounts.run(PROGRAM, f"prepare{kind}", "--native", native, "--base", base,
                              "--owner", uid, *options)
        assert prepared.returncode == 0, prepared.stderr
        mount = mount_store(store)
        view = mount.path / ".jobs/{job}" / directory  # each attempt to shrink a failure has its own job
        result = as_user(uid, [PROGRAM, f"run{kind}", "--native", native, "--view", view, *options],
                         job="parity", timeout=500,
                         env={**(env or {}), "CACHESHIM_MOUNT": str(mount.path)})
        assert result.returncode == 0, (
            f"exit {result.returncode}\n{result.stdout[-20000:]}{result.stderr}")

    return compare


@pytest.mark.timeout_s(600)
def test_locks_of_preloaded_processes(parity, library, scratch):
    """Leaves out the cases in which a process closes a directly opened descriptor, because such a close drops no record
    locks (docs/semantics.md)."""
    copy = shutil.copy(library, scratch / "libcacheshim.so")
    parity(12345, "", "parity", "--filter", "@(record-locks*O_RDWR*|deadlock*|flock*|waiting*)",
           env={"LD_PRELOAD": str(copy)})


@pytest.mark.timeout_s(600)
@pytest.mark.parametrize("uid", [0, 12345], ids=["root", "user"])
def test_every_operation_on_every_state_of_a_name(parity, uid):
    parity(uid, "", "parity")


def chosen_round():
    """Returns the options for random rounds or, if CACHESHIM_MODEL_SCRIPT names a file with the output of a failure,
    the options that repeat the failed round."""
    if script := os.environ.get("CACHESHIM_MODEL_SCRIPT"):
        return ["--script", script]
    seed = os.environ.get("CACHESHIM_MODEL_SEED", random.randrange(1 << 30))
    return ["--seed", seed, "--rounds", ROUNDS]


@pytest.mark.timeout_s(600)
@pytest.mark.parametrize("uid", [0, 12345], ids=["root", "user"])
def test_random_operations(parity, uid):
    parity(uid, "-model", "parity", *chosen_round())


@pytest.mark.timeout_s(600)
def test_random_operations_within_a_known_cache(parity):
    parity(12345, "-model", "triton/KEY", "--seed", 7, "--rounds", ROUNDS)


@pytest.mark.timeout_s(600)
@pytest.mark.parametrize("uid", [0, 12345], ids=["root", "user"])
def test_random_data(parity, uid):
    parity(uid, "-data", "parity", *chosen_round())


@pytest.fixture
def overlay_parity(scratch, overlay):
    """overlay_parity(owner, kind, uid, *options) compares like parity(), but on a plain overlay, with real owners."""
    def compare(owner, kind, uid, *options):
        native = scratch / "native"
        native.mkdir()
        for directory in (native, overlay.lowers[0]):
            os.chown(directory, owner, owner)
        same = ["--keeps-owners", *options]
        prepared = mounts.run(PROGRAM, f"prepare{kind}", "--native", native, "--base",
                              overlay.lowers[0], "--owner", owner, *same, timeout=200)
        assert prepared.returncode == 0, prepared.stderr
        # The runs of ordinary users also test nodiratime: the daemon then opens its directories through copies of their
        # mounts (MountCopies).
        overlay.mount(*(["nodiratime"] if uid else []))
        result = as_user(uid, [PROGRAM, f"run{kind}", "--native", native, "--view", overlay.path,
                               *same], timeout=500)
        assert result.returncode == 0, (
            f"exit {result.returncode}\n{result.stdout[-20000:]}{result.stderr}")

    return compare


@pytest.mark.timeout_s(600)
@pytest.mark.parametrize("uid", [0, 12345], ids=["root", "user"])
def test_every_operation_on_a_plain_overlay(overlay_parity, uid):
    overlay_parity(uid, "", uid)


@pytest.mark.timeout_s(600)
def test_several_users_on_a_plain_overlay(overlay_parity):
    """Tests permissions, set-id bits, sticky directories, ACLs and devices, with root acting as several users."""
    overlay_parity(20001, "", 0, "--several-users", "--filter",
                   "@(others-*|*ACL*|*set-*|capability-*|devices|trusted-*)")


@pytest.mark.timeout_s(600)
@pytest.mark.parametrize("uid", [0, 12345], ids=["root", "user"])
def test_random_operations_on_a_plain_overlay(overlay_parity, uid):
    seed = int(os.environ.get("CACHESHIM_MODEL_SEED", random.randrange(1 << 30)))
    overlay_parity(uid, "-model", uid, "--seed", seed, "--rounds", ROUNDS)


@pytest.mark.timeout_s(600)
def test_random_data_on_a_plain_overlay(overlay_parity):
    """In a plain overlay, passthrough is used even for files that are open for both reading and writing."""
    seed = int(os.environ.get("CACHESHIM_MODEL_SEED", random.randrange(1 << 30)))
    overlay_parity(0, "-data", 0, "--seed", seed, "--rounds", ROUNDS)


def test_each_known_difference_is_documented():
    listed = mounts.run(PROGRAM, "differences").stdout.splitlines()
    page = (mounts.REPOSITORY / "docs/semantics.md").read_text(encoding="utf-8")
    assert listed
    for line in listed:
        pattern = line.split("\t")[0]
        assert f"`{pattern}`" in page, f"docs/semantics.md does not name {pattern}"
