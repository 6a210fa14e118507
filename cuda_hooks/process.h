// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "cuda_hooks/policy.h"

// This process's plan. The constructor makes it, or the first call to the driver, if that comes
// earlier: a library's own constructor may run before a preloaded one.
namespace cacheshim::cuda {

// Makes the plan and sets the environment, once. Reads at most two files, of the run directory.
void start();

// Returns the plan; calls start() if necessary. Its strings stay valid.
const Plan& plan();

inline bool is_off() { return plan().policy == CudaPolicy::kOff; }

// Returns true for the first caller of a process.
inline bool is_first(std::atomic<bool>& said) {
  return !said.load(std::memory_order_relaxed) && !said.exchange(true);
}

}  // namespace cacheshim::cuda
