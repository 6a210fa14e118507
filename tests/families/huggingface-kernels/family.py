# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import VENVS, Family, version_in_venv

FAMILY = Family(
    title="Hugging Face kernels {version}", directory=pathlib.Path(__file__).parent,
    profile="huggingface-kernels", variable="KERNELS_CACHE", python=VENVS / "kernels/bin/python",
    version=version_in_venv("kernels", "kernels"), steps=4, library_sets_variable=False,
    server="hub", environment={"HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    is_long=True, most_builds=8)  # four kernels of two files; each file is downloaded once, under its lock
