# SPDX-License-Identifier: Apache-2.0
import dataclasses
import pathlib

from family import VENVS, replay

# No variable of the program sets the path: an application passes it, so the replay uses a variable of its own. The
# program uses filelock.
FAMILY = dataclasses.replace(
    replay("Torch-TensorRT's cache of TensorRT-RTX (d7f20628)", pathlib.Path(__file__).parent,
           "FAMILY_RUNTIME_CACHE"),
    python=VENVS / "pytest/bin/python", library_sets_variable=False)
