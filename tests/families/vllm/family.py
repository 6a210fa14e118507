# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import replay

FAMILY = replay("vLLM 0.33", pathlib.Path(__file__).parent, "VLLM_CACHE_ROOT")
