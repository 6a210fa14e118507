// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/cuda_defaults.h"
#include "common/job_id.h"

// What a process does about lazy loading, decided from text alone.
namespace cacheshim::cuda {

// The driver's own variable. Source: CUDA C++ Programming Guide, "Lazy Loading".
inline constexpr std::string_view kLoadingVariable = "CUDA_MODULE_LOADING";
// The value that a process of ours gave it, for its children: so they can tell it from the user's.
inline constexpr std::string_view kSetVariable = "CACHESHIM_CUDA_SET";

enum class Loading {
  kLeave,  // the variable stays as it is
  kEager,
  kLazy,
  kUnset,  // it was an ancestor of ours that set it
};

struct Plan {
  CudaPolicy policy = CudaPolicy::kOff;
  Loading loading = Loading::kLeave;
  bool user_is_lazy = false;        // and that is respected
  std::string_view refused_policy;  // of CACHESHIM_CUDA_EAGER, as it stands there
  std::string_view match;           // for kSelect
};

// `defaults` is what the configuration says for this program; the environment goes before it.
Plan make_plan(const Environment& environment, const CudaDefault& defaults);

// The plan of a process in which the library is disabled: what an ancestor set is taken back.
Plan make_disabled_plan(const Environment& environment);

}  // namespace cacheshim::cuda
