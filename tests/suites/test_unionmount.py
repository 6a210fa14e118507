# SPDX-License-Identifier: Apache-2.0
"""Runs unionmount-testsuite's tests of overlayfs with `mount -t fuse.cacheshim`, each in a separate run."""

import os

import bounded
import pytest

RUN_TIMEOUT_S = 120
# This test expects EXDEV for a directory's rename, which cacheshim supports.
LEFT_OUT = {"rename-exdev"}
# With --verify, these tests expect the files below a renamed directory to stay in the lower, as with overlayfs'
# redirect_dir. cacheshim copies these files up with the directory (docs/semantics.md).
LEFT_OUT_OF_VERIFY = {"rename-dir", "rename-move-dir", "rename-pop-dir"}


def names(top):
    tests = (top / "tests").glob("*.py")
    return sorted(test.stem for test in tests if not test.stem.startswith("__"))


def run(top, base, *words):
    env = {"PATH": os.environ["PATH"], "UNIONMOUNT_BASEDIR": str(base), "PYTHONDONTWRITEBYTECODE": "1"}
    return bounded.run(["/usr/bin/python3", "run", *words], RUN_TIMEOUT_S, cwd=top, env=env)


@pytest.mark.usefixtures("sbin")
@pytest.mark.timeout_s(1800)
@pytest.mark.parametrize("layers", [[], ["--verify"]], ids=["plain", "verify"])
@pytest.mark.parametrize("kind", ["--ov", "--ov=3"])
def test_every_test_passes(suite, scratch, kind, layers):
    top = suite("unionmount-testsuite", "run")
    base = scratch / "base"
    base.mkdir()
    left_out = LEFT_OUT | (LEFT_OUT_OF_VERIFY if layers else set())
    tests = [name for name in names(top) if name not in left_out]
    assert len(tests) > 40
    failed = {}
    try:
        for name in tests:
            status, output = run(top, base, kind, "--fuse=cacheshim", "--samefs", *layers, name)
            if status != 0:
                failed[name] = output.splitlines()[-3:]
    finally:
        run(top, base, "--clean-up")
    assert not failed, f"{len(failed)} of {len(tests)} fail: {failed}"
