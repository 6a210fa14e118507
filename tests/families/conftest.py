# SPDX-License-Identifier: Apache-2.0
"""What the proofs of profiles share: see README.md."""

import importlib.util
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "mount"), str(HERE)]

from fixtures import *  # noqa: E402,F401,F403  # fixtures and hooks are found by their names here
from index import Index  # noqa: E402


def load(name):
    """The FAMILY of a directory here."""
    spec = importlib.util.spec_from_file_location(f"family_{name}", HERE / name / "family.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FAMILY


def pytest_generate_tests(metafunc):
    if "family" in metafunc.fixturenames:
        names = sorted(path.parent.name for path in HERE.glob("*/family.py"))
        families = [(name, load(name)) for name in names]
        metafunc.parametrize("family", [
            pytest.param(family, id=name, marks=[pytest.mark.long] if family.is_long else [])
            for name, family in families])


@pytest.fixture
def index(scratch):
    """A package index over HTTP, for the families that download."""
    one = Index(scratch)
    yield one
    one.close()
