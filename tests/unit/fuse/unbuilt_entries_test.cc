// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/unbuilt_entries.h"

#include <gtest/gtest.h>

#include <string>

namespace cacheshim {
namespace {

class UnbuiltEntriesTest : public ::testing::Test {
 protected:
  bool may_wait_for(const std::string& unit) const { return unbuilt_.may_wait_for(unit, now_); }
  bool add(const std::string& unit) { return unbuilt_.add(unit, now_); }
  // Adds enough entries that no process may wait for any entry.
  void add_most() {
    for (std::size_t i = 1; i < UnbuiltEntries::kMost; ++i) {
      EXPECT_FALSE(add("triton/" + std::to_string(i)));
    }
    EXPECT_TRUE(add("triton/last"));
  }

  UnbuiltEntries unbuilt_;
  UnbuiltEntries::Clock::time_point now_ = UnbuiltEntries::Clock::now();
};

TEST_F(UnbuiltEntriesTest, ProcessesMayWaitForAnyEntryAtFirst) { EXPECT_TRUE(may_wait_for("triton/1")); }

TEST_F(UnbuiltEntriesTest, ProcessesNeverWaitAgainForAnAddedEntry) {
  EXPECT_FALSE(add("triton/1"));
  now_ += 2 * UnbuiltEntries::kDistrust;
  EXPECT_FALSE(may_wait_for("triton/1"));
  EXPECT_TRUE(may_wait_for("triton/2"));
}

TEST_F(UnbuiltEntriesTest, AnEntryThatIsAddedAgainCountsOnce) {
  for (std::size_t i = 0; i < 2 * UnbuiltEntries::kMost; ++i) EXPECT_FALSE(add("triton/1"));
  EXPECT_TRUE(may_wait_for("triton/2"));
}

TEST_F(UnbuiltEntriesTest, AfterManyEntriesNoProcessWaitsForAnHour) {
  add_most();
  EXPECT_FALSE(may_wait_for("triton/another"));
  now_ += UnbuiltEntries::kDistrust - std::chrono::nanoseconds{1};
  EXPECT_FALSE(may_wait_for("triton/another"));
  now_ += std::chrono::nanoseconds{1};
  EXPECT_TRUE(may_wait_for("triton/another"));
}

TEST_F(UnbuiltEntriesTest, AfterTheHourEveryEntryMayBeWaitedForAgain) {
  add_most();
  now_ += UnbuiltEntries::kDistrust;
  EXPECT_TRUE(may_wait_for("triton/1"));
  EXPECT_TRUE(may_wait_for("triton/last"));
  EXPECT_FALSE(add("triton/1"));
}

}  // namespace
}  // namespace cacheshim
