# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import torch_extensions

FAMILY = torch_extensions("torch.utils.cpp_extension, torch {version}", pathlib.Path(__file__).parent,
                          most_builds=3)
