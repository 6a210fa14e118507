# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that verify profiles (README.md)."""

import sys

import pytest
from hub import Hub
from index import Index
from loading import load_all


def marks_of(family):
    marks = [pytest.mark.long] if family.is_long else []
    if family.newest_python and sys.version_info[:2] > family.newest_python:
        marks.append(pytest.mark.skip(reason="it has no wheel for this system's Python"))
    return marks


def pytest_generate_tests(metafunc):
    if "family" in metafunc.fixturenames:
        metafunc.parametrize("family", [pytest.param(family, id=family.name, marks=marks_of(family))
                                        for family in load_all()])


@pytest.fixture
def server(family, scratch):
    """The HTTP server from which a family's users download; None if the family needs no server."""
    if not family.server:
        yield None
        return
    one = {"hub": Hub, "index": Index}[family.server](scratch)
    yield one
    one.close()
