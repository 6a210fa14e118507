# SPDX-License-Identifier: Apache-2.0
"""Runs fsx: random reads, writes, truncations and mappings of one file, each verified against the expected content."""

import bounded
import pytest

OPERATIONS = 20_000
RUN_TIMEOUT_S = 280
SEEDS = [1, 2, 3]


@pytest.mark.timeout_s(300)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("place", ["overlay", "over a lower file", "view"])
def test_finds_no_difference(suite, overlay, mount_store, store, place, seed):
    fsx = suite("xfstests", "ltp/fsx") / "ltp/fsx"
    if place == "view":
        file = mount_store(store).path / "unknown/file"
        file.parent.mkdir(exist_ok=True)  # mkdir creates it in the job's view, and fails with EEXIST
    else:
        file = overlay.path / "file"
        if place != "overlay":
            (overlay.lowers[0] / "file").write_bytes(b"")
        overlay.mount()
    status, output = bounded.run([fsx, "-q", "-N", str(OPERATIONS), "-S", str(seed), file], RUN_TIMEOUT_S)
    assert status == 0, output[-3000:]
