// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_hooks/driver.h"

// The policy `select`: the driver stays lazy, and only the kernels whose names match are loaded at
// once. Experimental.
namespace cacheshim::cuda {

// Whether there is a pattern to go by. Says so once where there is none, or none that compiles: then
// everything stays as lazy as it is without the library.
bool is_selecting();

// Loads the matching kernels of what was just loaded. A kernel that cannot be loaded stays lazy.
void preload_module(Driver& driver, CUmodule module);
// A library's kernels are loaded into the current context; without one they stay lazy, which is said
// once.
void preload_library(Driver& driver, CUlibrary library);

}  // namespace cacheshim::cuda
