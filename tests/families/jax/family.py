# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import VENVS, Family, version_in_venv

FAMILY = Family(
    title="JAX {version}, CPU", directory=pathlib.Path(__file__).parent, profile="jax",
    variable="JAX_COMPILATION_CACHE_DIR", python=VENVS / "families/bin/python",
    version=version_in_venv("families", "jax"), steps=4, library_sets_variable=False,
    environment={"JAX_PLATFORMS": "cpu", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                 "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"},
    is_long=True, most_builds=16)
