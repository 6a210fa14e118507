# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import VENVS, Family, version_in_venv

FAMILY = Family(
    title="CuTe DSL {version}", directory=pathlib.Path(__file__).parent, profile="cutedsl",
    variable="CUTE_DSL_CACHE_DIR", python=VENVS / "cutedsl/bin/python",
    version=version_in_venv("cutedsl", "nvidia-cutlass-dsl"), steps=4,
    environment={"CUTE_DSL_ARCH": "sm_90a"}, is_long=True, most_builds=16)
