# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import replay

FAMILY = replay("DeepGEMM (54e22612)", pathlib.Path(__file__).parent, "DG_JIT_CACHE_DIR",
                is_long=False,
                most_builds=8)  # not 4: at first cache/ does not exist, so each user may build its first kernel
