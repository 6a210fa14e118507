// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/job_id.h"
#include "cuda_hooks/policy.h"

// Sets the variables of this process's environment that determine the driver's loading mode.
namespace cacheshim::cuda {

class ProcessEnvironment final : public Environment {
 public:
  std::string_view find(std::string_view name) const override;
};

// Sets or removes CUDA_MODULE_LOADING as `loading` requires, and records for child processes that this library has set
// it. Allocates only if the environment has more than a thousand variables. Requires: no other thread uses the
// environment during this call; so call it before main.
void set_loading_at_start(Loading loading);

// Sets the variables again if `loading` is kEager or kLazy and the application has changed the value. Requires: no
// other thread uses the environment during this call, which may call setenv(3).
void ensure_loading(Loading loading);

}  // namespace cacheshim::cuda
