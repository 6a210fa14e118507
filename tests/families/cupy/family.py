# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import replay

FAMILY = replay("CuPy (6b6d9563)", pathlib.Path(__file__).parent, "CUPY_CACHE_DIR")
