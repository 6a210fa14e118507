# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import VENVS, Family, version_in_venv

FAMILY = Family(
    title="pip {version}", directory=pathlib.Path(__file__).parent, profile="pip",
    variable="PIP_CACHE_DIR", python=VENVS / "installers/bin/python",
    version=version_in_venv("installers", "pip"), steps=4, server="index",
    environment={"PIP_CONFIG_FILE": "/dev/null"},
    is_long=True, most_builds=16)
