# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import replay

FAMILY = replay("FlashInfer 0.7.2", pathlib.Path(__file__).parent, "FLASHINFER_WORKSPACE_BASE",
                is_long=False, most_builds=8)
