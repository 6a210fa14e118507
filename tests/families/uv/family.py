# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import VENVS, Family, version_in_venv

FAMILY = Family(
    title="uv {version}", directory=pathlib.Path(__file__).parent, profile="uv",
    variable="UV_CACHE_DIR", python=pathlib.Path("/usr/bin/python3"),
    version=version_in_venv("installers", "uv"), steps=4, server="index",
    environment={"FAMILY_UV": str(VENVS / "installers/bin/uv"), "UV_NO_CONFIG": "1",
                 "UV_PYTHON": "/usr/bin/python3", "UV_LINK_MODE": "copy"},
    most_builds=12)  # four users without a shared cache would make 16 downloads and builds
