# SPDX-License-Identifier: Apache-2.0
"""Builds three extensions as torch ≥ 2.14 does, under a FileLock."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import extensions  # noqa: E402

extensions.run()
