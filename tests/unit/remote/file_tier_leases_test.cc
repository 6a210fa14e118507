// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "remote/engines/file_tier.h"
#include "tests/unit/support/file_tier_fixture.h"
#include "tests/unit/support/replaced_calls.h"

namespace cacheshim::remote {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

TEST_F(FileTierTest, OneOfEightOwnersGetsTheLease) {
  for (int round = 0; round < 20; ++round) {
    const std::string key = "key" + std::to_string(round);
    // In every second round, an earlier lease was released.
    if (round % 2 == 1) {
      EXPECT_EQ(tier_.acquire(key, "earlier", kTtl), 1U);
      tier_.release(key, "earlier");
    }
    std::atomic<int> winners{0};
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] {
          FileTier own = make();
          if (own.acquire(key, "owner" + std::to_string(i), kTtl)) ++winners;
        });
      }
    }
    EXPECT_EQ(winners, 1);
  }
  EXPECT_TRUE(files("tmp").empty());
}

TEST_F(FileTierTest, FencingNumbersRiseAndTheHighestStays) {
  for (std::uint64_t number = 1; number <= 12; ++number) {
    EXPECT_EQ(tier_.acquire("a/key", "me", kTtl), number);
    EXPECT_EQ(other_.acquire("a/key", "you", kTtl), std::nullopt);
    tier_.release("a/key", "me");
    EXPECT_EQ(lease_numbers(), std::vector{std::to_string(number)});
  }
}

TEST_F(FileTierTest, TheOwnerOfALeaseGetsItAgain) {
  EXPECT_EQ(tier_.acquire("key", "me", kTtl), 1U);
  EXPECT_EQ(tier_.acquire("key", "me", kTtl), 2U);
  EXPECT_EQ(other_.acquire("key", "you", kTtl), std::nullopt);
  EXPECT_TRUE(tier_.renew("key", "me", kTtl));
}

TEST_F(FileTierTest, LeasesOfDifferentKeysAreIndependent) {
  EXPECT_TRUE(tier_.acquire("key", "me", kTtl));
  EXPECT_TRUE(other_.acquire("other", "you", kTtl));
}

TEST_F(FileTierTest, ANonOwnerChangesNothing) {
  EXPECT_FALSE(other_.renew("key", "you", kTtl));
  other_.release("key", "you");
  EXPECT_TRUE(tier_.acquire("key", "me", kTtl));
  const std::string file = files("leases").front();
  set_age(file, 30s);
  const auto before = fs::last_write_time(file);
  EXPECT_FALSE(other_.renew("key", "you", kTtl));
  other_.release("key", "you");
  EXPECT_EQ(fs::last_write_time(file), before);
  EXPECT_EQ(other_.acquire("key", "you", kTtl), std::nullopt);
  EXPECT_TRUE(tier_.renew("key", "me", kTtl));
}

TEST_F(FileTierTest, AnExpiredLeaseIsFree) {
  EXPECT_EQ(tier_.acquire("key", "me", 60s), 1U);
  set_age(files("leases").front(), 55s);
  EXPECT_EQ(other_.acquire("key", "you", kTtl), std::nullopt);
  set_age(files("leases").front(), 61s);
  EXPECT_EQ(other_.acquire("key", "you", kTtl), 2U);
  EXPECT_FALSE(tier_.renew("key", "me", kTtl));
  tier_.release("key", "me");
  EXPECT_TRUE(other_.renew("key", "you", kTtl));
}

TEST_F(FileTierTest, ALeaseExpiresWithoutHelp) {
  EXPECT_EQ(tier_.acquire("key", "me", 200ms), 1U);
  const auto begin = Clock::now();
  std::optional<std::uint64_t> number;
  while (!number && Clock::now() - begin < 10s) number = other_.acquire("key", "you", kTtl);
  EXPECT_EQ(number, 2U);
  EXPECT_GT(Clock::now() - begin, 100ms);
}

TEST_F(FileTierTest, ALeaseThatExpiredCannotBeRenewedAndIsFree) {
  EXPECT_EQ(tier_.acquire("key", "me", 60s), 1U);
  set_age(files("leases").front(), 61s);
  EXPECT_FALSE(tier_.renew("key", "me", kTtl));
  EXPECT_EQ(other_.acquire("key", "you", kTtl), 2U);
}

TEST_F(FileTierTest, RenewExtendsTheLeaseToTheNewTtl) {
  EXPECT_TRUE(tier_.acquire("key", "me", 60s));
  set_age(files("leases").front(), 50s);
  EXPECT_TRUE(tier_.renew("key", "me", 60s));
  EXPECT_LT(fs::file_time_type::clock::now() - fs::last_write_time(files("leases").front()), 40s);
  EXPECT_TRUE(tier_.renew("key", "me", 3600s));
  set_age(files("leases").front(), 3590s);
  EXPECT_EQ(other_.acquire("key", "you", kTtl), std::nullopt);
  EXPECT_TRUE(tier_.renew("key", "me", 10s));
  set_age(files("leases").front(), 11s);
  EXPECT_TRUE(other_.acquire("key", "you", kTtl));
}

TEST_F(FileTierTest, ANumberThatWasRemovedIsNotGrantedAgain) {
  EXPECT_EQ(tier_.acquire("key", "first", kTtl), 1U);
  tier_.release("key", "first");
  FileTier stopped = make();
  on_link = [&](const auto& link) {
    EXPECT_EQ(other_.acquire("key", "second", kTtl), 2U);
    other_.release("key", "second");
    EXPECT_EQ(tier_.acquire("key", "third", kTtl), 3U);
    return link();  // creates 2 again
  };
  EXPECT_EQ(stopped.acquire("key", "late", kTtl), std::nullopt);
  EXPECT_FALSE(stopped.renew("key", "late", kTtl));
  EXPECT_TRUE(tier_.renew("key", "third", kTtl));
  tier_.release("key", "third");
  EXPECT_EQ(other_.acquire("key", "fourth", kTtl), 4U);
}

TEST_F(FileTierTest, ANumberBelowAReleasedLeaseIsNotGranted) {
  EXPECT_EQ(tier_.acquire("key", "first", kTtl), 1U);
  tier_.release("key", "first");
  FileTier stopped = make();
  on_link = [&](const auto& link) {
    for (const char* const owner : {"second", "third"}) {
      EXPECT_TRUE(other_.acquire("key", owner, kTtl));
      other_.release("key", owner);
    }
    return link();  // creates 2 again
  };
  EXPECT_EQ(stopped.acquire("key", "late", kTtl), std::nullopt);
  EXPECT_EQ(other_.acquire("key", "fourth", kTtl), 4U);
}

TEST_F(FileTierTest, ASuccessorWithdrawsIfTheHolderRenewsAtTheSameTime) {
  EXPECT_EQ(tier_.acquire("key", "holder", kTtl), 1U);
  const std::string file = files("leases").front();
  set_age(file, 61s);
  on_link = [&](const auto& link) {
    set_age(file, 0s);  // as step (b) of the holder's renew does (file_tier_leases.cc)
    return link();
  };
  EXPECT_EQ(other_.acquire("key", "successor", kTtl), std::nullopt);
  EXPECT_FALSE(tier_.renew("key", "holder", kTtl));
  EXPECT_EQ(make().acquire("key", "third", kTtl), 3U);
}

TEST_F(FileTierTest, AHolderGivesUpIfASuccessorCameBeforeItsTouch) {
  EXPECT_EQ(tier_.acquire("key", "holder", kTtl), 1U);
  before_touch = [&] {
    set_age(files("leases").front(), 61s);
    EXPECT_EQ(other_.acquire("key", "successor", kTtl), 2U);
  };
  EXPECT_FALSE(tier_.renew("key", "holder", kTtl));
  EXPECT_TRUE(other_.renew("key", "successor", kTtl));
}

TEST_F(FileTierTest, TwoOwnersNeverHoldALeaseAtOnce) {
  std::atomic<int> holders{0};
  std::atomic<int> broken{0};
  std::atomic<std::uint64_t> last{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, owner = "owner" + std::to_string(i)] {
        FileTier own = make();
        for (int round = 0; round < 150; ++round) {
          const auto number = own.acquire("key", owner, kTtl);
          if (!number) continue;
          if (holders.fetch_add(1) != 0 || last.exchange(*number) >= *number) ++broken;
          if (!own.renew("key", owner, kTtl)) ++broken;
          holders.fetch_sub(1);
          own.release("key", owner);
        }
      });
    }
  }
  EXPECT_EQ(broken, 0);
  EXPECT_GT(last, 4U);
}

TEST_F(FileTierTest, ADamagedLeaseFileCountsAsReleased) {
  EXPECT_EQ(tier_.acquire("key", "me", kTtl), 1U);
  for (const unsigned left : {30U, 20U, 0U}) {
    fs::resize_file(files("leases").front(), left);
    EXPECT_FALSE(tier_.renew("key", "me", kTtl));
  }
  EXPECT_EQ(other_.acquire("key", "you", kTtl), 2U);
}

}  // namespace
}  // namespace cacheshim::remote
