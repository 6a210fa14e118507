// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/unit/support/file_tier_fixture.h"

namespace cacheshim::remote {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Returns how long `action` takes.
template <class Action>
Clock::duration time_of(Action action) {
  const auto begin = Clock::now();
  action();
  return Clock::now() - begin;
}

class FileTierWaitTest : public FileTierTest {
 protected:
  FileTierWaitTest() { EXPECT_TRUE(other_.acquire("key", "builder", kTtl)); }
  // Calls `action` on another thread while this thread waits. Returns the time from the start of this call to the end
  // of the wait. The time is negative if the wait ends first.
  Clock::duration wait_for(const std::function<void()>& action) {
    Clock::time_point acted;
    std::jthread actor([&] {
      std::this_thread::sleep_for(100ms);
      acted = Clock::now();
      action();
    });
    tier_.wait("key", 20s);
    const auto end = Clock::now();
    actor.join();
    return end - acted;
  }
};

TEST_F(FileTierWaitTest, EndsByItsTimeout) {
  const auto waited = time_of([&] { tier_.wait("key", 1000ms); });
  EXPECT_GE(waited, 1000ms);
  EXPECT_LT(waited, 9s);
}

TEST_F(FileTierWaitTest, WakesOnAPut) {
  const auto waited = wait_for([&] { (void)other_.put_if_absent("key", "x"); });
  EXPECT_GE(waited, 0ms);
  EXPECT_LT(waited, 9s);
}

TEST_F(FileTierWaitTest, WakesOnARelease) {
  const auto waited = wait_for([&] { other_.release("key", "builder"); });
  EXPECT_GE(waited, 0ms);
  EXPECT_LT(waited, 9s);
}

TEST_F(FileTierWaitTest, WakesIfThereIsANewLease) {
  // The builder acquires the lease again, so the key is never without a lease. The waiter can detect the new lease only
  // by its number.
  const auto waited = wait_for([&] { EXPECT_TRUE(other_.acquire("key", "builder", kTtl)); });
  EXPECT_GE(waited, 0ms);
  EXPECT_LT(waited, 9s);
}

TEST_F(FileTierWaitTest, DoesNotWakeOnARenewal) {
  std::atomic<bool> done{false};
  std::jthread builder([&] {
    while (!done) EXPECT_TRUE(other_.renew("key", "builder", kTtl));
  });
  EXPECT_GE(time_of([&] { tier_.wait("key", 400ms); }), 400ms);
  done = true;
}

TEST_F(FileTierWaitTest, WakesWhenTheLeaseIsNotRenewed) {
  EXPECT_TRUE(other_.renew("key", "builder", 200ms));
  EXPECT_LT(time_of([&] { tier_.wait("key", 20s); }), 9s);
}

TEST_F(FileTierWaitTest, ReturnsAtOnceIfThereIsNothingToWaitFor) {
  EXPECT_LT(time_of([&] { tier_.wait("free", 20s); }), 9s);
  other_.release("key", "builder");
  EXPECT_LT(time_of([&] { tier_.wait("key", 20s); }), 9s);
  EXPECT_TRUE(other_.acquire("key", "builder", kTtl));
  (void)other_.put_if_absent("key", "x");
  EXPECT_LT(time_of([&] { tier_.wait("key", 20s); }), 9s);
}

}  // namespace
}  // namespace cacheshim::remote
