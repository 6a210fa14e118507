# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import VENVS, Family, version_in_venv

FAMILY = Family(
    title="Numba {version}", directory=pathlib.Path(__file__).parent, profile="numba",
    variable="NUMBA_CACHE_DIR", python=VENVS / "families/bin/python",
    version=version_in_venv("families", "numba"), steps=4, library_sets_variable=False,
    is_long=True, most_builds=16)
