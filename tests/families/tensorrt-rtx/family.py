# SPDX-License-Identifier: Apache-2.0
import dataclasses
import pathlib

from family import VENVS, replay

# No variable names its place: an application passes the path, here by one of the replay's own. It uses filelock.
FAMILY = dataclasses.replace(
    replay("Torch-TensorRT's cache of TensorRT-RTX (d7f20628)", pathlib.Path(__file__).parent,
           "FAMILY_RUNTIME_CACHE"),
    python=VENVS / "pytest/bin/python", library_sets_variable=False)
