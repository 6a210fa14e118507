# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import BUILDS, REPOSITORY, VENVS, Family, version_in_venv

PACKAGE = next((VENVS / "triton").glob("lib/python3*/site-packages/triton"), pathlib.Path("missing"))

FAMILY = Family(
    title="Triton {version}", directory=pathlib.Path(__file__).parent, profile="triton",
    variable="TRITON_CACHE_DIR", python=VENVS / "triton/bin/python",
    version=version_in_venv("triton", "triton"), steps=4, is_long=True,
    # The wrapper counts by a line for each run of ptxas.
    environment={"TRITON_PTXAS_BLACKWELL_PATH": str(REPOSITORY / "tests/storm/ptxas-wrapper"),
                 "STORM_PTXAS": str(PACKAGE / "backends/nvidia/bin/ptxas-blackwell"),
                 "STORM_PTXAS_LOG": BUILDS},
    most_builds=4)
