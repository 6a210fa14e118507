// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_hooks/driver.h"

// The policy `select`: the driver stays lazy, and only kernels with matching names are loaded
// immediately. Experimental.
namespace cacheshim::cuda {

// Whether there is a valid pattern. If there is none, or it does not compile, prints one line once:
// then everything stays as lazy as without the library.
bool is_selecting();

// Loads the matching kernels of the module that was just loaded. A kernel that cannot be loaded
// stays lazy.
void preload_module(Driver& driver, CUmodule module);
// Loads a library's kernels into the current context; without a context they stay lazy, and one
// line says so once.
void preload_library(Driver& driver, CUlibrary library);

}  // namespace cacheshim::cuda
