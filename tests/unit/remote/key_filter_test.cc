// SPDX-License-Identifier: Apache-2.0
#include "remote/key_filter.h"

#include <gtest/gtest.h>

#include <string>

namespace cacheshim::remote {
namespace {

std::string key(int number) { return "triton/" + std::to_string(number); }

TEST(KeyFilter, HasWhatWasAddedAndNotRemoved) {
  constexpr int kKeys = 10'000;  // enough for several merges
  KeyFilter filter;
  for (int i = 0; i < kKeys; ++i) filter.add(key(i));
  EXPECT_EQ(filter.size(), kKeys);
  for (int i = 0; i < kKeys; i += 2) filter.remove(key(i));
  EXPECT_EQ(filter.size(), kKeys / 2);
  for (int i = 0; i < kKeys; ++i) EXPECT_EQ(filter.has(key(i)), i % 2 == 1) << i;
  EXPECT_FALSE(filter.has(key(kKeys)));
}

TEST(KeyFilter, AKeyThatIsAddedAgainCountsOnce) {
  KeyFilter filter;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3000; ++i) filter.add(key(i));
  }
  EXPECT_EQ(filter.size(), 3000U);
  filter.remove(key(7));
  EXPECT_FALSE(filter.has(key(7)));
  filter.remove(key(7));
  EXPECT_EQ(filter.size(), 2999U);
}

}  // namespace
}  // namespace cacheshim::remote
