// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "common/cuda_defaults.h"

namespace cacheshim {
namespace {

CudaPolicy policy_for(std::string_view text, const char* program) {
  return find_cuda_default(text, program).policy;
}

TEST(CudaDefaults, AreAutoByDefault) {
  EXPECT_EQ(policy_for("", "python3"), CudaPolicy::kAuto);
  EXPECT_EQ(policy_for("nvcc\toff\t\n", "python3"), CudaPolicy::kAuto);
  EXPECT_EQ(find_cuda_default("", "python3").match, "");
}

TEST(CudaDefaults, TheFirstLineThatMatchesApplies) {
  const std::string text = "python3\toff\t\npython*\tforce\t\n*\tselect\ta|b c\n";
  EXPECT_EQ(policy_for(text, "python3"), CudaPolicy::kOff);
  EXPECT_EQ(policy_for(text, "python3.11"), CudaPolicy::kForce);
  EXPECT_EQ(policy_for(text, "sh"), CudaPolicy::kSelect);
  EXPECT_EQ(find_cuda_default(text, "sh").match, "a|b c");
}

TEST(CudaDefaults, SkipsMalformedLines) {
  const std::string text =
      "\noff\n\toff\t\n*\tsometimes\t\n" + std::string(300, 'x') + "*\toff\t\nsh\toff";
  EXPECT_EQ(policy_for(text, "sh"), CudaPolicy::kOff);
  EXPECT_EQ(policy_for(text, "bash"), CudaPolicy::kAuto);
}

TEST(CudaPolicy, HasFourNames) {
  CudaPolicy policy = CudaPolicy::kForce;
  EXPECT_TRUE(parse_cuda_policy("off", policy));
  EXPECT_EQ(policy, CudaPolicy::kOff);
  for (const char* other : {"", "OFF", "of", "offf", "on", "1"}) {
    EXPECT_FALSE(parse_cuda_policy(other, policy)) << other;
  }
}

}  // namespace
}  // namespace cacheshim
