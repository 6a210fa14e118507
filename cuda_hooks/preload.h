// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_hooks/driver.h"

// The policy `select`: the driver stays lazy, and the library immediately loads only the kernels whose
// names match. Needs a driver of CUDA 12.4 or newer: with an older driver, all kernels stay lazy, and
// one line (once per process) reports this. Experimental.
namespace cacheshim::cuda {

// Whether the policy is `select` and the pattern is valid. If the policy is `select` and the
// pattern is missing or does not compile, prints one line (once per process), and all kernels stay
// lazy.
bool is_selecting();

// Loads the matching kernels of the module that was just loaded. A kernel that cannot be loaded
// stays lazy.
void preload_module(Driver& driver, CUmodule module);
// Loads the matching kernels of a library into the current context. If no context is current, the
// kernels stay lazy, and one line (once per process) reports this.
void preload_library(Driver& driver, CUlibrary library);

}  // namespace cacheshim::cuda
