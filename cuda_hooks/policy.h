// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/cuda_defaults.h"
#include "common/job_id.h"

// The decisions of a process about lazy loading, made from text alone.
namespace cacheshim::cuda {

// The driver's own variable. Source: CUDA C++ Programming Guide, "Lazy Loading".
inline constexpr std::string_view kLoadingVariable = "CUDA_MODULE_LOADING";
// Contains the value to which this library has set CUDA_MODULE_LOADING, in this process or an
// ancestor, to distinguish it from a value that the user has set.
inline constexpr std::string_view kSetVariable = "CACHESHIM_CUDA_SET";

enum class Loading {
  kLeave,  // the variable stays unchanged
  kEager,
  kLazy,
  kUnset,  // remove the variable: an ancestor with this library has set it
};

struct Plan {
  CudaPolicy policy = CudaPolicy::kOff;
  Loading loading = Loading::kLeave;
  bool user_is_lazy = false;        // the user has requested LAZY, and the library respects that
  std::string_view refused_policy;  // the value of CACHESHIM_CUDA_EAGER, if it is invalid
  std::string_view match;           // the pattern of kernel names, for kSelect
};

// `defaults` is the configuration's entry for this program; the environment takes precedence.
Plan make_plan(const Environment& environment, const CudaDefault& defaults);

// Returns the plan of a process in which the library is disabled. The plan removes CUDA_MODULE_LOADING
// if this library has set the variable in an ancestor process, and otherwise changes nothing.
Plan make_disabled_plan(const Environment& environment);

}  // namespace cacheshim::cuda
