// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>

#include "shim/direct/path_marks.h"

namespace cacheshim::direct {
namespace {

constexpr FilterKey kKey = 0x123456789abcdef0;
constexpr std::uint64_t kState = 0x7f0000001000;  // looks like an address

TEST(PathMarks, AMarkCountsForItsPathAndState) {
  const auto marks = std::make_unique<PathMarks>();
  EXPECT_FALSE(marks->has(PathMarks::kForBase, kKey, kState));
  marks->set(PathMarks::kForBase, kKey, kState);
  EXPECT_TRUE(marks->has(PathMarks::kForBase, kKey, kState));
  EXPECT_FALSE(marks->has(PathMarks::kForBase, kKey, kState + 1));
  EXPECT_FALSE(marks->has(PathMarks::kOpened, kKey, kState));
}

TEST(PathMarks, AMarkDoesNotCountForAKeyThatDiffersInOneBit) {
  const auto marks = std::make_unique<PathMarks>();
  marks->set(PathMarks::kForBase, kKey, kState);
  for (unsigned bit = 0; bit < 64; ++bit) {
    EXPECT_FALSE(marks->has(PathMarks::kForBase, kKey ^ (FilterKey{1} << bit), kState)) << bit;
  }
}

// An empty slot contains 0, so a mark of key 0 and state 0 must differ from it.
TEST(PathMarks, KeyAndStateOfZeroMakeAMark) {
  const auto marks = std::make_unique<PathMarks>();
  EXPECT_FALSE(marks->has(PathMarks::kForBase, 0, 0));
  marks->set(PathMarks::kForBase, 0, 0);
  EXPECT_TRUE(marks->has(PathMarks::kForBase, 0, 0));
}

}  // namespace
}  // namespace cacheshim::direct
