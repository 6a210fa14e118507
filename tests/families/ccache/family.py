# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import Family, output_of

FAMILY = Family(
    title="ccache {version}", directory=pathlib.Path(__file__).parent, profile="ccache",
    variable="CCACHE_DIR", python=pathlib.Path("/usr/bin/python3"),
    version=lambda: output_of("ccache", "--version").split()[2], steps=6,
    environment={"CCACHE_SLOPPINESS": "include_file_mtime,include_file_ctime"},
    most_builds=24)
