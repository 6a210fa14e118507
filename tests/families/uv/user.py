# SPDX-License-Identifier: Apache-2.0
"""Installs three wheels and a source distribution with uv."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import packages  # noqa: E402

packages.run([os.environ["FAMILY_UV"], "pip", "install", "--quiet", "--no-deps",
              "--default-index", os.environ["FAMILY_INDEX"]])
