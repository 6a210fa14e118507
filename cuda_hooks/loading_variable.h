// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/job_id.h"
#include "cuda_hooks/policy.h"

// The variables of this process's environment that set the driver's loading mode.
namespace cacheshim::cuda {

class ProcessEnvironment final : public Environment {
 public:
  std::string_view find(std::string_view name) const override;
};

// Sets CUDA_MODULE_LOADING as the plan says, and records for children that this library set it.
// Allocates nothing unless the environment has more than a thousand variables. Call before main: no
// other thread may use the environment.
void set_loading_at_start(Loading loading);

// The same later, when an application may have changed the value: does nothing if it is right. Uses
// setenv(3), with its rules for threads.
void ensure_loading(Loading loading);

}  // namespace cacheshim::cuda
