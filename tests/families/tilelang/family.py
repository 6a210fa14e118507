# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import replay

FAMILY = replay("TileLang 0.1.15", pathlib.Path(__file__).parent, "TILELANG_CACHE_DIR",
                most_builds=5)
