# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import BUILDS, REPOSITORY, VENVS, Family, version_in_venv

FAMILY = Family(
    title="TorchInductor, torch {version}, CPU", directory=pathlib.Path(__file__).parent,
    profile="inductor", variable="TORCHINDUCTOR_CACHE_DIR", python=VENVS / "torch/bin/python",
    version=version_in_venv("torch", "torch"), steps=3, is_long=True,
    # The wrapper records a build for each library or object that g++ makes.
    environment={"CXX": str(REPOSITORY / "tests/storm/g++-wrapper"), "STORM_GXX_LOG": BUILDS,
                 "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1",
                 "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"},
    most_builds=28)
