# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import replay

FAMILY = replay("ROCm comgr (d2a7cd1a)", pathlib.Path(__file__).parent, "AMD_COMGR_CACHE_DIR")
