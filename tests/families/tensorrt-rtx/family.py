# SPDX-License-Identifier: Apache-2.0
import dataclasses
import pathlib

from family import VENVS, replay

# The program gets the cache's path from the application and not from a variable, so the replay defines a variable for
# it. The replay needs filelock, which the virtual environment `pytest` contains.
FAMILY = dataclasses.replace(
    replay("Torch-TensorRT's cache of TensorRT-RTX (d7f20628)", pathlib.Path(__file__).parent,
           "FAMILY_RUNTIME_CACHE"),
    python=VENVS / "pytest/bin/python", library_sets_variable=False)
