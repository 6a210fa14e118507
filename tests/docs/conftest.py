# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "mount"))

from fixtures import *  # noqa: E402,F401,F403  # fixtures and hooks are found by their names here
