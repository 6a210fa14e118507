// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <barrier>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/support/redis_fixture.h"

namespace cacheshim::remote::redis_test {
namespace {

std::vector<std::string> all_keys(RedisTier& tier, std::string& position, std::size_t most) {
  std::vector<std::string> keys;
  for (bool is_last = false; !is_last;) {
    const CataloguePage page = tier.keys_since(position, most);
    EXPECT_LE(page.keys.size(), most);
    keys.insert(keys.end(), page.keys.begin(), page.keys.end());
    position = page.position;
    is_last = page.is_last;
  }
  return keys;
}

TEST_F(RedisTierTest, OneOfEightConcurrentWritersStoresItsObject) {
  constexpr std::size_t kWriters = 8;
  constexpr int kRounds = 20;
  const auto tiers = make_tiers(kWriters);
  std::vector<std::atomic<int>> stored(kRounds);
  std::vector<std::vector<std::string>> seen(kRounds, std::vector<std::string>(kWriters));
  std::barrier round_begins(kWriters);
  std::vector<std::jthread> threads;
  for (std::size_t writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      const std::string object(100'000 + writer, static_cast<char>('a' + writer));
      for (std::size_t round = 0; round < kRounds; ++round) {
        const std::string key = "round/" + std::to_string(round);
        round_begins.arrive_and_wait();
        if (tiers[writer]->put_if_absent(key, object) == PutOutcome::kStored) ++stored[round];
        seen[round][writer] = tiers[writer]->get(key, kNoLimit).value_or("<none>");
      }
    });
  }
  threads.clear();
  for (std::size_t round = 0; round < kRounds; ++round) {
    EXPECT_EQ(stored[round], 1);
    EXPECT_GE(seen[round][0].size(), 100'000U);
    for (const std::string& object : seen[round]) EXPECT_EQ(object, seen[round][0]);
  }
}

TEST_F(RedisTierTest, AnAbsentKeyHasNoObject) {
  EXPECT_EQ(tier_->get("triton/absent", kNoLimit), std::nullopt);
  EXPECT_EQ(tier_->get("triton/absent", 0), std::nullopt);
  EXPECT_FALSE(tier_->remove("triton/absent"));
}

TEST_F(RedisTierTest, EmptyAndBinaryObjectsAreReadUnchanged) {
  std::string bytes(256, '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  std::string large;
  while (large.size() < 20'000'000) large += bytes;
  const std::vector<std::string> objects = {"", std::string(1, '\0'), "\r\n$-1\r\n", bytes, large};
  for (const std::string& object : objects) {
    const std::string key = "size/" + std::to_string(object.size());
    EXPECT_EQ(tier_->put_if_absent(key, object), PutOutcome::kStored);
    EXPECT_EQ(tier_->put_if_absent(key, "other"), PutOutcome::kExists);
    EXPECT_TRUE(make_tier()->get(key, object.size()) == object) << object.size();
  }
}

TEST_F(RedisTierTest, AnObjectOverTheLimitIsRefusedAndNotTransferred) {
  const std::string object(1'000'000, 'x');
  EXPECT_EQ(tier_->put_if_absent("k", object), PutOutcome::kStored);
  const long long sent = server_->info("stats", "total_net_output_bytes:");
  EXPECT_EQ(kind_of([&] { (void)tier_->get("k", 10'000); }), Kind::kRefused);
  EXPECT_EQ(kind_of([&] { (void)tier_->get("k", 0); }), Kind::kRefused);
  EXPECT_LT(server_->info("stats", "total_net_output_bytes:") - sent, 50'000);
  EXPECT_EQ(kind_of([&] { (void)tier_->get("k", object.size() - 1); }), Kind::kRefused);
  EXPECT_EQ(tier_->get("k", object.size()), object);
}

TEST_F(RedisTierTest, ARemovedKeyLeavesTheCatalogueAndCanBeStoredAgain) {
  EXPECT_EQ(tier_->put_if_absent("a", "1"), PutOutcome::kStored);
  EXPECT_EQ(tier_->put_if_absent("b", "1"), PutOutcome::kStored);
  std::string position;
  EXPECT_EQ(all_keys(*tier_, position, 10), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(tier_->remove("a"));
  EXPECT_FALSE(tier_->remove("a"));
  EXPECT_EQ(tier_->get("a", kNoLimit), std::nullopt);
  std::string beginning;
  EXPECT_EQ(all_keys(*tier_, beginning, 10), std::vector<std::string>{"b"});
  EXPECT_EQ(tier_->put_if_absent("a", "2"), PutOutcome::kStored);
  EXPECT_EQ(tier_->get("a", kNoLimit), "2");
  EXPECT_EQ(all_keys(*tier_, position, 10), std::vector<std::string>{"a"});
}

TEST_F(RedisTierTest, ALeaseHasOneWinnerOfEightAndFencingNumbersRise) {
  constexpr std::size_t kOwners = 8;
  const auto tiers = make_tiers(kOwners);
  std::uint64_t last = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::optional<std::uint64_t>> fences(kOwners);
    std::barrier all_begin(kOwners);
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kOwners; ++i) {
      threads.emplace_back([&, i] {
        all_begin.arrive_and_wait();
        fences[i] = tiers[i]->acquire("k", "owner" + std::to_string(i), 60s);
      });
    }
    threads.clear();
    const auto has_lease = [](const auto& fence) { return fence.has_value(); };
    ASSERT_EQ(std::ranges::count_if(fences, has_lease), 1);
    const auto winner = std::ranges::find_if(fences, has_lease);
    EXPECT_GT(**winner, last);
    last = **winner;
    const std::string owner = "owner" + std::to_string(winner - fences.begin());
    EXPECT_EQ(server_->command({"GET", "cacheshim:l:k"}), owner + " " + std::to_string(last));
    tier_->release("k", owner);
  }
}

TEST_F(RedisTierTest, OnlyTheOwnerRenewsAndReleasesItsLease) {
  ASSERT_TRUE(tier_->acquire("k", "owner", 60s));
  for (const char* other : {"other", "own", "owner1"}) {
    EXPECT_EQ(tier_->acquire("k", other, 60s), std::nullopt);
    EXPECT_FALSE(tier_->renew("k", other, 1ms));
    tier_->release("k", other);
  }
  EXPECT_GT(std::stoi(server_->command({"PTTL", "cacheshim:l:k"})), 30'000);
  EXPECT_TRUE(tier_->renew("k", "owner", 600s));
  EXPECT_GT(std::stoi(server_->command({"PTTL", "cacheshim:l:k"})), 500'000);
  EXPECT_TRUE(tier_->acquire("another", "other", 60s));
  tier_->release("k", "owner");
  EXPECT_FALSE(tier_->renew("k", "owner", 60s));
  EXPECT_TRUE(tier_->acquire("k", "other", 60s));
}

TEST_F(RedisTierTest, AnOwnerThatAsksAgainGetsANewFencingNumber) {
  const auto first = tier_->acquire("k", "owner", 1s);
  const auto second = tier_->acquire("k", "owner", 60s);
  ASSERT_TRUE(first && second);
  EXPECT_GT(*second, *first);
  EXPECT_GT(std::stoi(server_->command({"PTTL", "cacheshim:l:k"})), 30'000);
}

TEST_F(RedisTierTest, AnExpiredLeaseIsFree) {
  const auto first = tier_->acquire("k", "first", 1ms);
  ASSERT_TRUE(first);
  std::optional<std::uint64_t> second;
  EXPECT_TRUE(
      holds_in_time([&] { return (second = tier_->acquire("k", "second", 60s)).has_value(); }));
  EXPECT_GT(second.value_or(0), *first);
  EXPECT_FALSE(tier_->renew("k", "first", 60s));
  tier_->release("k", "first");
  EXPECT_TRUE(tier_->renew("k", "second", 60s));
}

TEST_F(RedisTierTest, NumbersRiseAlthoughTheServerLosesItsData) {
  const auto fence = tier_->acquire("k", "owner", 60s);
  for (int i = 0; i < 100; ++i) (void)tier_->put_if_absent("old" + std::to_string(i), "1");
  std::string position;
  EXPECT_EQ(all_keys(*tier_, position, 1000).size(), 100U);
  EXPECT_EQ(server_->command({"FLUSHALL"}), "OK");
  EXPECT_GT(tier_->acquire("k", "owner", 60s), fence);
  EXPECT_EQ(tier_->put_if_absent("new", "1"), PutOutcome::kStored);
  EXPECT_EQ(all_keys(*tier_, position, 1000), std::vector<std::string>{"new"});
}

TEST_F(RedisTierTest, WaitReturnsWhenTheKeyIsStored) {
  ASSERT_TRUE(tier_->acquire("k", "owner", 60s));
  EXPECT_LT(time_of([&] {
              std::jthread waiter([tier = make_tier()] { tier->wait("k", 60s); });
              await_waiter("k");
              (void)tier_->put_if_absent("k", "object");
            }),
            30s);
}

TEST_F(RedisTierTest, WaitReturnsWhenTheLeaseIsReleased) {
  ASSERT_TRUE(tier_->acquire("k", "owner", 60s));
  EXPECT_LT(time_of([&] {
              std::jthread waiter([tier = make_tier()] { tier->wait("k", 60s); });
              await_waiter("k");
              tier_->release("k", "owner");
            }),
            30s);
}

TEST_F(RedisTierTest, WaitReturnsWhenTheLeaseExpiresUnlessTheOwnerRenewsIt) {
  ASSERT_TRUE(tier_->acquire("k", "owner", 300ms));
  EXPECT_LT(time_of([&] { tier_->wait("k", 60s); }), kSoon);
  ASSERT_TRUE(tier_->acquire("k", "owner", 1s));
  EXPECT_GE(time_of([&] {
              std::jthread waiter([tier = make_tier()] { tier->wait("k", 60s); });
              await_waiter("k");
              EXPECT_TRUE(tier_->renew("k", "owner", 2s));
            }),
            2s);
}

TEST_F(RedisTierTest, WaitEndsByItsTimeout) {
  ASSERT_TRUE(tier_->acquire("k", "owner", 60s));
  for (int i = 0; i < 2; ++i) {  // first with a new connection, then with the same one
    const auto time = time_of([&] { tier_->wait("k", kTimeout); });
    EXPECT_GE(time, kTimeout);
    EXPECT_LE(time, kLatest);
  }
  EXPECT_LT(time_of([&] { tier_->wait("k", 0ms); }), kTimeout);
}

TEST_F(RedisTierTest, WaitReturnsAtOnceIfTheKeyExistsOrHasNoLease) {
  EXPECT_LT(time_of([&] { tier_->wait("k", 60s); }), kSoon);
  ASSERT_TRUE(tier_->acquire("k", "owner", 60s));
  (void)tier_->put_if_absent("k", "object");
  EXPECT_LT(time_of([&] { tier_->wait("k", 60s); }), kSoon);
}

// The object is stored, or the lease released, before, during or after the waiter's subscription.
TEST_F(RedisTierTest, NoEventIsLostWhileAWaiterSubscribes) {
  const auto waiter = make_tier();
  for (int round = 0; round < 300; ++round) {
    const std::string key = "k" + std::to_string(round);
    ASSERT_TRUE(tier_->acquire(key, "owner", 60s));
    std::barrier both_begin(2);
    const auto time = time_of([&] {
      std::jthread thread([&] {
        both_begin.arrive_and_wait();
        waiter->wait(key, kSoon);
      });
      both_begin.arrive_and_wait();
      std::this_thread::sleep_for(std::chrono::microseconds(round * 2));
      if (round % 2 == 0) (void)tier_->put_if_absent(key, "object");
      tier_->release(key, "owner");
    });
    ASSERT_LT(time, kSoon / 2) << "round " << round;
  }
}

TEST_F(RedisTierTest, AWaiterIgnoresTheEventsOfItsPreviousKey) {
  ASSERT_TRUE(tier_->acquire("one", "owner", 60s));
  ASSERT_TRUE(tier_->acquire("two", "owner", 60s));
  const auto waiter = make_tier();
  waiter->wait("one", 1ms);
  waiter->wait("one", 100ms);
  EXPECT_EQ(server_->command({"PUBLISH", "cacheshim:w:one", "before"}), "0");
  EXPECT_GE(time_of([&] {
              std::jthread thread([&] { waiter->wait("two", 500ms); });
              await_waiter("two");
              tier_->release("one", "owner");
            }),
            500ms);
}

TEST_F(RedisTierTest, PagesContainEveryKeyOnceAndInOrder) {
  std::string position;
  EXPECT_TRUE(all_keys(*tier_, position, 10).empty());
  std::vector<std::string> stored;
  for (int i = 0; i < 1000; ++i) {
    stored.push_back("triton/" + std::to_string(i * 7919 % 1000) + std::string(1000, 'x'));
    (void)tier_->put_if_absent(stored.back(), "1");
  }
  for (const std::size_t most :
       {std::size_t{1}, std::size_t{37}, std::size_t{500}, std::size_t{1000}}) {
    position.clear();
    EXPECT_EQ(all_keys(*tier_, position, most), stored);
    EXPECT_TRUE(all_keys(*tier_, position, most).empty());
  }
  EXPECT_FALSE(tier_->keys_since("", 999).is_last);
  EXPECT_EQ(tier_->keys_since("", SIZE_MAX).keys.size(), 1000U);
  EXPECT_EQ(tier_->keys_since("", 0).keys.size(), 1U);
  EXPECT_EQ(kind_of([&] { (void)tier_->keys_since("(1 +inf", 1); }), Kind::kRefused);
}

TEST_F(RedisTierTest, PagesLoseNoKeyOfConcurrentWriters) {
  constexpr std::size_t kWriters = 4;
  constexpr std::size_t kKeys = 500;
  std::atomic<std::size_t> writing{kWriters};
  std::vector<std::jthread> writers;
  for (std::size_t writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer, tier = make_tier()] {
      for (std::size_t i = 0; i < kKeys; ++i)
        (void)tier->put_if_absent(std::to_string(writer) + "/" + std::to_string(i), "1");
      --writing;
    });
  }
  std::set<std::string> seen;
  std::string position;
  for (bool is_complete = false; !is_complete;) {
    is_complete = writing == 0;
    for (const std::string& key : all_keys(*tier_, position, 7)) seen.insert(key);
  }
  EXPECT_EQ(seen.size(), kWriters * kKeys);
}

TEST_F(RedisTierTest, PrefixesAndDatabasesAreIndependent) {
  RedisOptions other_prefix = options();
  other_prefix.prefix = "other:";
  RedisOptions other_database = options();
  other_database.database = 5;
  EXPECT_EQ(tier_->put_if_absent("k", "1"), PutOutcome::kStored);
  for (const RedisOptions& other : {other_prefix, other_database}) {
    RedisTier tier(other);
    EXPECT_EQ(tier.get("k", kNoLimit), std::nullopt);
    EXPECT_TRUE(tier.keys_since("", 10).keys.empty());
    EXPECT_EQ(tier.put_if_absent("k", "2"), PutOutcome::kStored);
  }
  EXPECT_EQ(tier_->get("k", kNoLimit), "1");
  other_database.database = 1000;
  EXPECT_EQ(kind_of([&] { (void)RedisTier(other_database).get("k", 1); }), Kind::kRefused);
}

}  // namespace
}  // namespace cacheshim::remote::redis_test
