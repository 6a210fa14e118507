# SPDX-License-Identifier: Apache-2.0
"""What the proofs of profiles share: see README.md."""

import importlib.util
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "mount"), str(HERE)]

from fixtures import *  # noqa: E402,F401,F403  # fixtures and hooks are found by their names here
from hub import Hub  # noqa: E402
from index import Index  # noqa: E402


def module_of(name):
    spec = importlib.util.spec_from_file_location(f"family_{name}", HERE / name / "family.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(name):
    """The FAMILY of a directory here."""
    return module_of(name).FAMILY


def load_all():
    """Every FAMILY, and those of every FAMILIES."""
    modules = [module_of(path.parent.name) for path in sorted(HERE.glob("*/family.py"))]
    return [family for module in modules
            for family in getattr(module, "FAMILIES", None) or [module.FAMILY]]


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
    """The server over HTTP that a family's users download from; None if they build."""
    if not family.server:
        yield None
        return
    one = {"hub": Hub, "index": Index}[family.server](scratch)
    yield one
    one.close()
