// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "cuda_hooks/policy.h"

// This process's plan. It is made in the constructor; where a library's own constructor, which runs
// before a preloaded one, calls the driver first, by that call.
namespace cacheshim::cuda {

// Makes the plan and sets the environment, once. Reads at most two files, of the run directory.
void start();

// The plan; starts if need be. Its strings stay valid.
const Plan& plan();

inline bool is_off() { return plan().policy == CudaPolicy::kOff; }

// True for the first caller of a process.
inline bool is_first(std::atomic<bool>& said) {
  return !said.load(std::memory_order_relaxed) && !said.exchange(true);
}

}  // namespace cacheshim::cuda
