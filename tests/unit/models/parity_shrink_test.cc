// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/shrink.h"

#include <gtest/gtest.h>

#include <numeric>

namespace cacheshim::parity {
namespace {

std::vector<int> numbers(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

bool holds(const std::vector<int>& all, int number) {
  return std::find(all.begin(), all.end(), number) != all.end();
}

TEST(Shrink, LeavesOnlyTheStepsThatAreNeeded) {
  const auto fails = [](const std::vector<int>& steps) {
    return holds(steps, 17) && holds(steps, 18) && holds(steps, 90);
  };
  EXPECT_EQ(shrink<int>(numbers(100), fails, 1000), (std::vector<int>{17, 18, 90}));
}

TEST(Shrink, LeavesTheLastStepIfItAloneFails) {
  const auto fails = [](const std::vector<int>& steps) { return holds(steps, 99); };
  EXPECT_EQ(shrink<int>(numbers(100), fails, 1000), (std::vector<int>{99}));
}

TEST(Shrink, LeavesOutStepsThatBecomeDispensable) {
  // Only steps at the beginning of the list can be left out: the rest must have no gaps and end with 9.
  const auto fails = [](const std::vector<int>& steps) {
    return !steps.empty() && steps.back() == 9 && std::is_sorted(steps.begin(), steps.end()) &&
           steps.back() - steps.front() + 1 == static_cast<int>(steps.size());
  };
  EXPECT_EQ(shrink<int>(numbers(10), fails, 1000), (std::vector<int>{9}));
}

TEST(Shrink, KeepsAllStepsIfEveryStepIsNeeded) {
  const auto fails = [](const std::vector<int>& steps) { return steps.size() == 7; };
  EXPECT_EQ(shrink<int>(numbers(7), fails, 1000), numbers(7));
}

TEST(Shrink, EndsAtTheLimitOfAttemptsWithStepsThatFail) {
  unsigned attempts = 0;
  const auto fails = [&](const std::vector<int>& steps) {
    ++attempts;
    return holds(steps, 3) && holds(steps, 60);
  };
  const std::vector<int> left = shrink<int>(numbers(100), fails, 5);
  EXPECT_EQ(attempts, 5U);
  EXPECT_TRUE(holds(left, 3) && holds(left, 60));
}

TEST(Shrink, TakesNoStepsAtAll) {
  EXPECT_TRUE(shrink<int>(
                  {}, [](const std::vector<int>&) { return true; }, 10)
                  .empty());
}

}  // namespace
}  // namespace cacheshim::parity
