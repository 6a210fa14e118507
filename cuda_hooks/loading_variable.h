// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/job_id.h"
#include "cuda_hooks/policy.h"

// The environment of this process, as far as the driver's loading mode goes.
namespace cacheshim::cuda {

class ProcessEnvironment final : public Environment {
 public:
  std::string_view find(std::string_view name) const override;
};

// Makes CUDA_MODULE_LOADING what the plan says, and notes for children that it was us. Allocates
// nothing unless the environment has more than a thousand variables. For the time before main: no
// other thread may use the environment.
void set_loading_at_start(Loading loading);

// The same later, when an application may have changed it: does nothing where the value is right.
// By setenv(3), with its rules for threads.
void ensure_loading(Loading loading);

}  // namespace cacheshim::cuda
