# SPDX-License-Identifier: Apache-2.0
"""Finds the families: each directory here that has a family.py."""

import importlib.util
import pathlib

HERE = pathlib.Path(__file__).parent


def module_of(name):
    spec = importlib.util.spec_from_file_location(f"family_{name}", HERE / name / "family.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(name):
    """Returns the FAMILY that `name`/family.py defines."""
    return module_of(name).FAMILY


def load_all():
    """Returns all families: each family.py defines one (FAMILY) or several (FAMILIES)."""
    modules = [module_of(path.parent.name) for path in sorted(HERE.glob("*/family.py"))]
    return [family for module in modules
            for family in getattr(module, "FAMILIES", None) or [module.FAMILY]]
