// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "cuda_hooks/policy.h"

// This process's plan. The constructor makes it. If another library's constructor runs first and
// calls the driver, that call makes the plan.
namespace cacheshim::cuda {

// Makes the plan and sets the environment, once. Reads at most two files: the defaults in the run
// directory of root's daemon and, if there are none, those in the run directory of the user's
// daemon.
void start();

// Returns the plan; calls start() if necessary. Its strings stay valid.
const Plan& plan();

inline bool is_off() { return plan().policy == CudaPolicy::kOff; }

// Returns true only for the first call with this flag in a process.
inline bool is_first(std::atomic<bool>& said) {
  return !said.load(std::memory_order_relaxed) && !said.exchange(true);
}

}  // namespace cacheshim::cuda
