// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/breaker.h"

#include <gtest/gtest.h>

namespace cacheshim {
namespace {

using std::chrono::milliseconds;

class BreakerTest : public ::testing::Test {
 protected:
  void pass(Breaker::Clock::duration time) { now_ += time; }
  bool fail() { return breaker_.note_failure(now_); }
  bool succeed() { return breaker_.note_success(now_); }
  Breaker::Clock::duration to_probe() const { return breaker_.probe_at() - now_; }

  Breaker breaker_;
  Breaker::Clock::time_point now_ = Breaker::Clock::now();
};

TEST_F(BreakerTest, IsOpenUntilTheFirstProbeSucceeds) {
  EXPECT_FALSE(breaker_.is_closed());
  EXPECT_LE(breaker_.probe_at(), now_);
  EXPECT_TRUE(succeed());
  EXPECT_TRUE(breaker_.is_closed());
  EXPECT_FALSE(succeed());
}

TEST_F(BreakerTest, TheIntervalOfProbesGrowsToItsLimit) {
  (void)succeed();
  EXPECT_TRUE(fail());
  for (auto interval = Breaker::kFirstInterval; interval < Breaker::kLongestInterval;
       interval *= 2) {
    EXPECT_EQ(to_probe(), interval);
    pass(interval);
    EXPECT_FALSE(fail());
  }
  EXPECT_EQ(to_probe(), Breaker::kLongestInterval);
}

TEST_F(BreakerTest, WhileItIsOpenOnlyAProbeCounts) {
  (void)succeed();
  (void)fail();
  pass(milliseconds(1));
  EXPECT_FALSE(fail());
  EXPECT_EQ(to_probe(), Breaker::kFirstInterval - milliseconds(1));
}

TEST_F(BreakerTest, TheIntervalIsShortAgainOnlyAfterAStableTime) {
  (void)succeed();
  (void)fail();
  pass(Breaker::kFirstInterval);
  (void)succeed();
  pass(Breaker::kStable - milliseconds(1));
  EXPECT_TRUE(fail());
  EXPECT_EQ(to_probe(), 2 * Breaker::kFirstInterval);
  pass(to_probe());
  (void)succeed();
  pass(Breaker::kStable);
  EXPECT_TRUE(fail());
  EXPECT_EQ(to_probe(), Breaker::kFirstInterval);
}

}  // namespace
}  // namespace cacheshim
