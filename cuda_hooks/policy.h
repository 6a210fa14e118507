// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/cuda_defaults.h"
#include "common/job_id.h"

// Decides how a process sets CUDA_MODULE_LOADING. These functions only process text: they read and change no state of
// the process.
namespace cacheshim::cuda {

// The driver's own variable. Source: CUDA C++ Programming Guide, "Lazy Loading".
inline constexpr std::string_view kLoadingVariable = "CUDA_MODULE_LOADING";
// Contains the value that this library, in this process or an ancestor, has assigned to CUDA_MODULE_LOADING. The
// library uses it to recognize a value that the user has set instead.
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

// Returns the plan for a process if the library is disabled in it. The plan removes CUDA_MODULE_LOADING if this library
// has set the variable in an ancestor process, and otherwise changes nothing.
Plan make_disabled_plan(const Environment& environment);

}  // namespace cacheshim::cuda
