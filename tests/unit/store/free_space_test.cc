// SPDX-License-Identifier: Apache-2.0
#include "store/sys/free_space.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace cacheshim {
namespace {

using namespace std::chrono_literals;

class FreeSpaceTest : public ::testing::Test {
 protected:
  FreeSpace::Clock::time_point now_{1h};
  FreeSpace::State state_{.available = 1000, .total = 5000};
  int error_ = 0;
  int measurements_ = 0;
  FreeSpace space_{0,
                   {.measure = [this](int) -> Result<FreeSpace::State> {
                      ++measurements_;
                      if (error_ != 0) return Errno(error_);
                      return state_;
                    },
                    .now = [this] { return now_; }}};
};

TEST_F(FreeSpaceTest, GivesNoMoreThanIsAvailable) {
  EXPECT_TRUE(space_.take(1000));
  EXPECT_FALSE(space_.take(1001));
  state_.available = 0;
  EXPECT_FALSE(space_.take(1));
  EXPECT_TRUE(space_.take(0));
}

TEST_F(FreeSpaceTest, MeasuresAgainWhenHalfOfTheBytesAreGone) {
  EXPECT_TRUE(space_.take(200));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(space_.take(100));
  EXPECT_EQ(measurements_, 1);
  state_.available = 50;
  EXPECT_FALSE(space_.take(100));
  EXPECT_EQ(measurements_, 2);
}

TEST_F(FreeSpaceTest, MeasuresAgainWhenTheMeasurementIsOld) {
  EXPECT_TRUE(space_.take(1));
  state_.available = 0;
  EXPECT_TRUE(space_.take(1));
  now_ += FreeSpace::kLifetime;
  EXPECT_FALSE(space_.take(1));
  EXPECT_EQ(space_.last_available(), 0U);
}

TEST_F(FreeSpaceTest, HasRoomIfItCannotBeMeasured) {
  error_ = EIO;
  EXPECT_TRUE(space_.take(1 << 30));
  error_ = 0;
  state_ = {.available = 0, .total = 0};  // the file system does not report its space
  EXPECT_TRUE(space_.take(1 << 30));
  EXPECT_TRUE(FreeSpace(-1).take(1 << 30));
}

TEST_F(FreeSpaceTest, AHugeRequestDoesNotOverflow) {
  EXPECT_FALSE(space_.take(~std::uint64_t{0}));
  EXPECT_TRUE(space_.take(10));
}

}  // namespace
}  // namespace cacheshim
