// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/policy.h"

#include <cstring>

namespace cacheshim::cuda {
namespace {

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// The value of CUDA_MODULE_LOADING, and whether this library has set it.
struct Inherited {
  std::string_view value;
  bool ours;
  bool user_says(std::string_view wanted) const { return !ours && same(value, wanted); }
};

Inherited read_inherited(const Environment& environment) {
  const std::string_view value = environment.find(kLoadingVariable);
  return {value, !value.empty() && same(value, environment.find(kSetVariable))};
}

// Only the values LAZY and EAGER count as a decision of the user. The other valid values (DEFAULT, and AUTO, which an
// application's parent process may have set) leave the mode to the driver.
Loading choose_loading(CudaPolicy policy, const Inherited& inherited) {
  switch (policy) {
    case CudaPolicy::kOff:
      return inherited.ours ? Loading::kUnset : Loading::kLeave;
    case CudaPolicy::kAuto:
      return inherited.user_says("LAZY") ? Loading::kLeave : Loading::kEager;
    case CudaPolicy::kForce:
      return Loading::kEager;
    case CudaPolicy::kSelect:
      return inherited.user_says("EAGER") ? Loading::kLeave : Loading::kLazy;
  }
  return Loading::kLeave;
}

}  // namespace

Plan make_plan(const Environment& environment, const CudaDefault& defaults) {
  Plan plan;
  plan.policy = defaults.policy;
  plan.match = defaults.match;
  const std::string_view wanted = environment.find(kCudaEagerVariable);
  if (!wanted.empty() && !parse_cuda_policy(wanted, plan.policy)) plan.refused_policy = wanted;
  const std::string_view match = environment.find(kCudaMatchVariable);
  if (!match.empty()) plan.match = match;
  const Inherited inherited = read_inherited(environment);
  plan.loading = choose_loading(plan.policy, inherited);
  plan.user_is_lazy = plan.policy == CudaPolicy::kAuto && plan.loading == Loading::kLeave;
  return plan;
}

Plan make_disabled_plan(const Environment& environment) {
  Plan plan;
  plan.loading = choose_loading(plan.policy, read_inherited(environment));
  return plan;
}

}  // namespace cacheshim::cuda
