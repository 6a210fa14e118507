// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/publishing/store_room.h"

#include <gtest/gtest.h>

#include <chrono>

namespace cacheshim {
namespace {

using namespace std::chrono_literals;

class StoreRoomTest : public ::testing::Test {
 protected:
  StoreRoom::Clock::time_point now_{1h};
  FreeSpace::State free_{.available = 1 << 20, .total = 1 << 30};
  FreeSpace space_{0, {.measure = [this](int) { return free_; }, .now = [this] { return now_; }}};
  StoreRoom room_{space_, [this] { return now_; }};
};

TEST_F(StoreRoomTest, HasRoomUntilAnAttemptFails) {
  EXPECT_TRUE(room_.has_room());
  EXPECT_EQ(room_.full_since(), 0);
  room_.note_full();
  EXPECT_FALSE(room_.has_room());
  EXPECT_GT(room_.full_since(), 0);
}

TEST_F(StoreRoomTest, GoesOnWhenMoreIsFreeThanAtTheFailure) {
  room_.note_full();
  EXPECT_FALSE(room_.take_resumption());
  free_.available += StoreRoom::kLeast;
  EXPECT_TRUE(room_.take_resumption());
  EXPECT_FALSE(room_.take_resumption());
  EXPECT_TRUE(room_.has_room());
}

TEST_F(StoreRoomTest, TriesAgainAfterAWhile) {
  room_.note_full();
  now_ += StoreRoom::kRetry;
  EXPECT_TRUE(room_.take_resumption());
}

TEST_F(StoreRoomTest, DoesNotTryWithoutAnyRoom) {
  free_.available = 0;
  EXPECT_FALSE(room_.has_room());  // even before an attempt to publish fails
  EXPECT_TRUE(room_.is_full());
  now_ += StoreRoom::kRetry;
  EXPECT_FALSE(room_.take_resumption());
}

}  // namespace
}  // namespace cacheshim
