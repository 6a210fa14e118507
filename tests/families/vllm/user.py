# SPDX-License-Identifier: Apache-2.0
"""Replays vLLM's cache of compiled models: vllm 0.33.0 (PyPI), vllm/compilation/decorators.py
(save_aot_compiled_function, and the code that loads its results)."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import replaying  # noqa: E402

CACHE = pathlib.Path(os.environ["VLLM_CACHE_ROOT"], "torch_compile_cache/torch_aot_compile")


def get(key: str) -> bytes:
    model = CACHE / key / "rank_0_0" / "model"
    if not model.exists():
        data = replaying.build(key)
        model.parent.mkdir(parents=True, exist_ok=True)
        replaying.write_and_rename(model, model.with_name(f"model.{os.getpid()}.tmp"), data)
    return model.read_bytes()


replaying.run(get)
