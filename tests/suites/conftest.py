# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests that run other projects' suites. CACHESHIM_SUITES names the directory of their checkouts;
README.md lists them."""

import os
import pathlib

import pytest


@pytest.fixture
def suite():
    """suite("ltp", "lib/libltp.a") returns the directory of LTP's checkout. Skips the test if there is no checkout, and
    fails the test if a file is missing, because the suite is then not built."""

    def find(name, *built):
        top = pathlib.Path(os.environ.get("CACHESHIM_SUITES", "/nonexistent")) / name
        if not top.is_dir():
            pytest.skip(f"there is no {name} below CACHESHIM_SUITES")
        for path in built:
            if not (top / path).exists():
                pytest.fail(f"{top} is not built: it has no {path}")
        return top

    return find


@pytest.fixture
def native(scratch):
    """A directory on the same file system as the overlay's upper directory."""
    path = scratch / "native"
    path.mkdir()
    return path
