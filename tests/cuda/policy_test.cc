// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/policy.h"

#include <gtest/gtest.h>

#include <string>

namespace cacheshim::cuda {
namespace {

// Returns the plan for an environment. `assignments` are NAME=value, separated by spaces.
Plan plan_of(const std::string& assignments, const CudaDefault& defaults = {}) {
  static std::string block;  // the plan's strings point into it
  block = assignments;
  for (char& c : block) c = c == ' ' ? '\0' : c;
  block += '\0';
  return make_plan(EnvironmentBlock(block), defaults);
}

TEST(CudaPlan, LoadsEagerlyUnlessTheUserIsLazy) {
  EXPECT_EQ(plan_of("").loading, Loading::kEager);
  EXPECT_EQ(plan_of("CUDA_MODULE_LOADING=EAGER").loading, Loading::kEager);
  EXPECT_EQ(plan_of("CUDA_MODULE_LOADING=DEFAULT").loading, Loading::kEager);
  EXPECT_EQ(plan_of("CUDA_MODULE_LOADING=AUTO").loading, Loading::kEager);
  EXPECT_FALSE(plan_of("").user_is_lazy);
  EXPECT_EQ(plan_of("CUDA_MODULE_LOADING=LAZY").loading, Loading::kLeave);
  EXPECT_TRUE(plan_of("CUDA_MODULE_LOADING=LAZY").user_is_lazy);
}

TEST(CudaPlan, ForceOverridesTheUser) {
  const Plan plan = plan_of("CUDA_MODULE_LOADING=LAZY CACHESHIM_CUDA_EAGER=force");
  EXPECT_EQ(plan.loading, Loading::kEager);
  EXPECT_FALSE(plan.user_is_lazy);
}

TEST(CudaPlan, SelectLeavesTheDriverLazy) {
  const Plan plan = plan_of("CACHESHIM_CUDA_EAGER=select CACHESHIM_CUDA_MATCH=^a");
  EXPECT_EQ(plan.policy, CudaPolicy::kSelect);
  EXPECT_EQ(plan.loading, Loading::kLazy);
  EXPECT_EQ(plan.match, "^a");
  EXPECT_EQ(plan_of("CACHESHIM_CUDA_EAGER=select CUDA_MODULE_LOADING=EAGER").loading,
            Loading::kLeave);
}

TEST(CudaPlan, OffRevertsOnlyAnAncestorsSetting) {
  EXPECT_EQ(plan_of("CACHESHIM_CUDA_EAGER=off").loading, Loading::kLeave);
  EXPECT_EQ(plan_of("CACHESHIM_CUDA_EAGER=off CUDA_MODULE_LOADING=EAGER").loading, Loading::kLeave);
  const std::string ours = " CUDA_MODULE_LOADING=EAGER CACHESHIM_CUDA_SET=EAGER";
  EXPECT_EQ(plan_of("CACHESHIM_CUDA_EAGER=off" + ours).loading, Loading::kUnset);
  EXPECT_EQ(plan_of("CACHESHIM_CUDA_EAGER=select" + ours).loading, Loading::kLazy);
  const std::string changed = " CUDA_MODULE_LOADING=LAZY CACHESHIM_CUDA_SET=EAGER";
  EXPECT_EQ(plan_of("CACHESHIM_CUDA_EAGER=off" + changed).loading, Loading::kLeave);
  EXPECT_TRUE(plan_of(changed).user_is_lazy);
  EXPECT_EQ(plan_of(" CUDA_MODULE_LOADING=LAZY CACHESHIM_CUDA_SET=LAZY").loading, Loading::kEager);
}

TEST(CudaPlan, TheEnvironmentTakesPrecedence) {
  const CudaDefault defaults{CudaPolicy::kSelect, "^b"};
  EXPECT_EQ(plan_of("", defaults).policy, CudaPolicy::kSelect);
  EXPECT_EQ(plan_of("", defaults).match, "^b");
  EXPECT_EQ(plan_of("CACHESHIM_CUDA_MATCH=c", defaults).match, "c");
  EXPECT_EQ(plan_of("CACHESHIM_CUDA_EAGER=off", defaults).policy, CudaPolicy::kOff);
}

TEST(CudaPlan, AnUnknownPolicyLeavesTheDefault) {
  const Plan plan = plan_of("CACHESHIM_CUDA_EAGER=yes", {CudaPolicy::kForce, ""});
  EXPECT_EQ(plan.policy, CudaPolicy::kForce);
  EXPECT_EQ(plan.refused_policy, "yes");
}

TEST(CudaPlan, ADisabledLibraryRevertsAnAncestorsSetting) {
  const std::string block("CUDA_MODULE_LOADING=EAGER\0CACHESHIM_CUDA_SET=EAGER\0", 51);
  EXPECT_EQ(make_disabled_plan(EnvironmentBlock(block)).loading, Loading::kUnset);
  EXPECT_EQ(make_disabled_plan(EnvironmentBlock("")).loading, Loading::kLeave);
  EXPECT_EQ(make_disabled_plan(EnvironmentBlock("")).policy, CudaPolicy::kOff);
}

}  // namespace
}  // namespace cacheshim::cuda
