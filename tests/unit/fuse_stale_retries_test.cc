// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "fuse/stale_retries.h"

namespace cacheshim {
namespace {

using namespace std::chrono_literals;
constexpr pid_t kClient = 7;

// Of files that are replaced again and again.
struct StaleRetriesTest : testing::Test {
  StaleRetriesTest() { retries.wait(); }
  std::future<void> replace() {
    return std::async(std::launch::async, [this] { retries.wait(); });
  }
  // Whether it ends before anybody's patience does.
  static bool ends_now(std::future<void>& replacing) {
    return replacing.wait_for(5ms) == std::future_status::ready;
  }
  StaleRetries retries;
};

TEST_F(StaleRetriesTest, WhoReplacesWaitsForWhoLooksAgain) {
  bool has_waited = false;  // this thread may be kept from running for as long as patience lasts
  for (int i = 0; i < 20 && !has_waited; ++i) {
    retries.begin(kClient);
    auto replacing = replace();
    has_waited = !ends_now(replacing);
    retries.end(kClient);
  }
  EXPECT_TRUE(has_waited);
}

TEST_F(StaleRetriesTest, ButNotForEver) {
  retries.begin(kClient);
  retries.looked(kClient);
  retries.begin(kClient + 1);
  EXPECT_EQ(replace().wait_for(10s), std::future_status::ready);
}

TEST_F(StaleRetriesTest, NobodyIsWaitedForWhoIsNotKnownOrHasItOpen) {
  bool has_ended = false;
  for (int i = 0; i < 20 && !has_ended; ++i) {
    retries.begin(0);
    retries.begin(kClient);
    retries.end(kClient);
    auto replacing = replace();
    has_ended = ends_now(replacing);
  }
  EXPECT_TRUE(has_ended);
}

TEST(StaleRetries, WhatIsReplacedForTheFirstTimeWaitsForNobody) {
  bool has_ended = false;
  for (int i = 0; i < 20 && !has_ended; ++i) {
    StaleRetries retries;
    retries.begin(kClient);
    auto replacing = std::async(std::launch::async, [&] { retries.wait(); });
    has_ended = replacing.wait_for(5ms) == std::future_status::ready;
  }
  EXPECT_TRUE(has_ended);
}

}  // namespace
}  // namespace cacheshim
