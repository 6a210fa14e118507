# SPDX-License-Identifier: Apache-2.0
"""Compiles six C files with ccache."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import compiling  # noqa: E402

compiling.run("ccache")
