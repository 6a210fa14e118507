// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "remote/engines/s3_tier.h"
#include "tests/unit/support/seaweedfs.h"
#include "tests/unit/support/tier_failure.h"

// S3Tier with a real server; s3_tier_test.cc has the tests with prepared replies.
namespace cacheshim::remote {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostBytes = 1 << 20;

// One server for all tests, because it takes seconds to start. Each test has its own prefix.
class S3Server : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (weed_program().empty()) return;
    weed_ = std::make_unique<Weed>();
    is_started_ = weed_->start();
  }
  static void TearDownTestSuite() { weed_.reset(); }
  void SetUp() override {
    if (weed_ == nullptr)
      GTEST_SKIP() << "SeaweedFS's program weed is neither in PATH nor named by CACHESHIM_WEED";
    ASSERT_TRUE(is_started_) << weed_->log();
  }
  S3Options options(std::chrono::milliseconds timeout = 10s) const {
    return weed_->options(::testing::UnitTest::GetInstance()->current_test_info()->name(), timeout);
  }

  static inline std::unique_ptr<Weed> weed_;
  static inline bool is_started_ = false;
};

// Calls `action` in `count` threads at the same time, each with its number. Returns when all calls have ended.
void in_threads(int count, const std::function<void(int)>& action) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&action, i] { action(i); });
}

TEST_F(S3Server, ObjectsAreReturnedUnchanged) {
  S3Tier tier(options());
  std::string every_byte;
  for (int i = 0; i < (3 << 20); ++i) every_byte += static_cast<char>(i * 31 >> 3);
  for (const std::string& object : {std::string(), std::string("\0\r\n\xFF", 4), every_byte}) {
    const std::string key = fmt::format("size/{}", object.size());
    EXPECT_EQ(tier.get(key, object.size()), std::nullopt);
    EXPECT_EQ(tier.put_if_absent(key, object), PutOutcome::kStored);
    EXPECT_TRUE(tier.get(key, object.size()) == object) << key;
    EXPECT_EQ(tier.put_if_absent(key, "other"), PutOutcome::kExists);
    EXPECT_TRUE(tier.get(key, object.size()) == object) << key;
    if (object.empty()) continue;
    EXPECT_EQ(kind_of([&] { (void)tier.get(key, object.size() - 1); }), "refused");
  }
}

TEST_F(S3Server, RemovedObjectsAreAbsent) {
  S3Tier tier(options());
  EXPECT_FALSE(tier.remove("a/b"));
  EXPECT_EQ(tier.put_if_absent("a/b", "one"), PutOutcome::kStored);
  EXPECT_TRUE(tier.remove("a/b"));
  EXPECT_FALSE(tier.remove("a/b"));
  EXPECT_EQ(tier.get("a/b", kMostBytes), std::nullopt);
  EXPECT_EQ(tier.put_if_absent("a/b", "two"), PutOutcome::kStored);
  EXPECT_EQ(tier.get("a/b", kMostBytes), "two");
}

void expect_one_winner_of_eight(const std::string& key, const S3Options& options) {
  constexpr int kWriters = 8;
  std::barrier barrier(kWriters);
  std::array<std::string, kWriters> read;
  std::atomic<int> stored{0};
  std::string winner;
  in_threads(kWriters, [&](int i) {
    S3Tier tier(options);
    const std::string object(50000, static_cast<char>('a' + i));
    barrier.arrive_and_wait();
    if (tier.put_if_absent(key, object) == PutOutcome::kStored && ++stored == 1) winner = object;
    read[static_cast<std::size_t>(i)] = tier.get(key, kMostBytes).value_or("absent");
  });
  EXPECT_EQ(stored, 1);
  for (const std::string& object : read) EXPECT_TRUE(object == winner) << key;
}

// SeaweedFS 4.48 delays a writer by 1 s if another process writes the same key. To save time, the test writes four keys
// at once.
TEST_F(S3Server, OneOfEightWritersStoresTheObject) {
  in_threads(4, [&](int group) {
    for (int round = 0; round < 5; ++round)
      expect_one_winner_of_eight(fmt::format("group {}/round {}", group, round), options(30s));
  });
}

TEST_F(S3Server, KeysMayContainAllCharacters) {
  S3Tier tier(options());
  const std::set<std::string> keys{"a b/c+d%2B/e", "\xC3\xA9/\xE2\x82\xAC\xF0\x9F\x98\x80",
                                   "<&>\"'/;=@:,$!*()[]{}|^`~?#", "-._~/...",
                                   std::string(200, 'x') + "/" + std::string(200, 'y')};
  for (const std::string& key : keys) {
    EXPECT_EQ(tier.put_if_absent(key, key), PutOutcome::kStored);
    EXPECT_EQ(tier.get(key, kMostBytes), key);
  }
  const CataloguePage page = tier.keys_since("", 1000);
  EXPECT_EQ(std::set<std::string>(page.keys.begin(), page.keys.end()), keys);
  EXPECT_TRUE(page.is_last);
}

// Returns the keys of one pass over the catalogue.
std::set<std::string> pass_over(S3Tier& tier, std::size_t most) {
  std::set<std::string> keys;
  CataloguePage page;
  do {
    page = tier.keys_since(page.position, most);
    EXPECT_LE(page.keys.size(), most);
    keys.insert(page.keys.begin(), page.keys.end());
  } while (!page.is_last);
  EXPECT_EQ(page.position, "");
  return keys;
}

TEST_F(S3Server, CatalogueHasAllKeysAlsoWithConcurrentWriters) {
  S3Tier tier(options());
  EXPECT_TRUE(pass_over(tier, 7).empty());
  std::set<std::string> keys;
  for (int i = 0; i < 40; ++i) keys.insert(fmt::format("family {}/entry+{}", i % 3, i));
  for (const std::string& key : keys) (void)tier.put_if_absent(key, "x");
  EXPECT_EQ(pass_over(tier, 7), keys);
  EXPECT_EQ(pass_over(tier, 1), keys);

  std::atomic<int> writers{3};
  std::jthread reader([&] {
    S3Tier other(options());
    while (writers > 0) EXPECT_TRUE(std::ranges::includes(pass_over(other, 7), keys));
  });
  in_threads(3, [&](int i) {
    S3Tier writer(options());
    for (int n = 0; n < 40; ++n)
      (void)writer.put_if_absent(fmt::format("family {}/late {}", i, n), "x");
    --writers;
  });
  reader.join();
  for (int i = 0; i < 120; ++i) keys.insert(fmt::format("family {}/late {}", i / 40, i % 40));
  EXPECT_EQ(pass_over(tier, 7), keys);
}

TEST_F(S3Server, RejectedCursorsDoNotStopTheCatalogue) {
  S3Tier tier(options());
  (void)tier.put_if_absent("a", "x");
  CataloguePage page = tier.keys_since("\x01 no cursor", 10);
  while (!page.is_last) page = tier.keys_since(page.position, 10);
  EXPECT_EQ(tier.keys_since(page.position, 10).keys, std::vector<std::string>{"a"});
}

TEST_F(S3Server, WaitEndsWhenTheObjectIsStoredOrAtTheTimeout) {
  S3Tier tier(options());
  const auto start = Clock::now();
  tier.wait("a/b", 700ms);
  EXPECT_GE(Clock::now() - start, 700ms);
  EXPECT_LT(Clock::now() - start, 8s);

  std::atomic<bool> is_stored{false};
  Clock::time_point stored_at;
  std::jthread writer([&] {
    S3Tier other(options());
    std::this_thread::sleep_for(1s);
    is_stored = true;
    (void)other.put_if_absent("a/b", "x");
    stored_at = Clock::now();
  });
  tier.wait("a/b", 30s);
  const auto woken_at = Clock::now();
  EXPECT_TRUE(is_stored);
  writer.join();
  EXPECT_LT(woken_at - stored_at, 9s);
  EXPECT_EQ(tier.get("a/b", kMostBytes), "x");
}

TEST_F(S3Server, RefusedRequestsAreNotUnavailable) {
  const auto kinds_with = [&](const std::function<void(S3Options&)>& change) {
    S3Options changed = options();
    change(changed);
    S3Tier tier(changed);
    return kind_of([&] { (void)tier.get("a", kMostBytes); }) + " " +
           kind_of([&] { (void)tier.put_if_absent("a", "x"); });
  };
  EXPECT_EQ(kinds_with([](S3Options& o) { o.secret_key = "wrong"; }), "refused refused");
  EXPECT_EQ(kinds_with([](S3Options& o) { o.access_key = "unknown"; }), "refused refused");
  EXPECT_EQ(kinds_with([](S3Options& o) { o.access_key = "R"; }), "none refused");
  EXPECT_EQ(kinds_with([](S3Options& o) {
              o.bucket = "absent";
              o.access_key = "R";
            }),
            "refused refused");
}

TEST_F(S3Server, StoppedServerIsUnavailableUntilItContinues) {
  S3Tier tier(options(2s));
  EXPECT_EQ(tier.put_if_absent("a", "x"), PutOutcome::kStored);
  weed_->stop();
  const std::vector<std::function<void(S3Tier&)>> calls{
      [](S3Tier& t) { (void)t.get("a", kMostBytes); },
      [](S3Tier& t) { (void)t.put_if_absent("b", std::string(2 << 20, 'x')); },
      [](S3Tier& t) { (void)t.remove("other"); }, [](S3Tier& t) { (void)t.keys_since("", 10); },
      [&tier](S3Tier&) { (void)tier.get("a", kMostBytes); }};  // uses the open connection of `tier`
  std::vector<Failure> failures(calls.size());
  in_threads(static_cast<int>(calls.size()), [&](int i) {
    S3Tier other(options(2s));
    const auto at = static_cast<std::size_t>(i);
    failures[at] = failure_of([&] { calls[at](other); });
  });
  weed_->resume();
  for (const Failure& failure : failures) {
    EXPECT_EQ(failure.kind, "unavailable");
    EXPECT_GE(failure.after, 1900ms);
    EXPECT_LE(failure.after, 9s) << failure.message;
  }
  EXPECT_EQ(tier.get("a", kMostBytes), "x");
}

TEST_F(S3Server, KilledServerIsUnavailableUntilItRestarts) {
  S3Tier tier(options(2s));
  EXPECT_EQ(tier.put_if_absent("a", "x"), PutOutcome::kStored);
  weed_->kill();
  const Failure failure = failure_of([&] { (void)tier.get("a", kMostBytes); });
  EXPECT_EQ(failure.kind, "unavailable");
  EXPECT_LE(failure.after, 9s);
  EXPECT_EQ(kind_of([&] { (void)tier.put_if_absent("b", "x"); }), "unavailable");
  ASSERT_TRUE(weed_->start()) << weed_->log();
  EXPECT_EQ(tier.get("a", kMostBytes), "x");
}

}  // namespace
}  // namespace cacheshim::remote
