// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "fuse/services/remote/pack_exchange.h"

namespace cacheshim {
namespace {

using Units = std::vector<std::string>;

TEST(ChoosePacked, TheFirstPackHasWhatTheJobUsed) {
  EXPECT_EQ(choose_packed({"a", "b"}, {}, true), (Units{"a", "b"}));
  EXPECT_EQ(choose_packed({"a", "b"}, {}, false), (Units{"a", "b"}));
  EXPECT_EQ(choose_packed({}, {}, true), std::nullopt);
}

TEST(ChoosePacked, APackThatHasAllIsKept) {
  EXPECT_EQ(choose_packed({"a", "b"}, {"a", "b"}, true), std::nullopt);
  EXPECT_EQ(choose_packed({"b"}, {"a", "b"}, true), std::nullopt);
  EXPECT_EQ(choose_packed({}, {"a", "b"}, true), std::nullopt);  // the job has not begun its work
}

TEST(ChoosePacked, AnotherEntryIsAdded) {
  EXPECT_EQ(choose_packed({"b", "c"}, {"a", "b"}, true), (Units{"a", "b", "c"}));
}

TEST(ChoosePacked, UnusedEntriesAreDroppedIfTheyAreMoreThanHalf) {
  EXPECT_EQ(choose_packed({"c"}, {"a", "b", "c"}, true), Units{"c"});
  EXPECT_EQ(choose_packed({"d"}, {"a", "b", "c"}, true), Units{"d"});
}

TEST(ChoosePacked, AFailedJobDropsNoEntry) {
  EXPECT_EQ(choose_packed({"c"}, {"a", "b", "c"}, false), std::nullopt);
  EXPECT_EQ(choose_packed({"d"}, {"a", "b", "c"}, false), (Units{"a", "b", "c", "d"}));
}

}  // namespace
}  // namespace cacheshim
