// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/unique_fd.h"
#include "remote/engines/redis_tier.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim::remote {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = TierError::Kind;
using namespace std::chrono_literals;

constexpr const char* kServerPath = "/usr/bin/redis-server";
constexpr std::size_t kNoLimit = std::size_t{1} << 30;
constexpr auto kTimeout = 1000ms;             // where a test waits for it
constexpr auto kLatest = kTimeout * 6;  // of a call with that timeout, on a busy machine
constexpr auto kSoon = 10s;  // of what happens within milliseconds on an idle machine

// A Redis server on a Unix socket, without persistence. It ends with this object, or with the test.
class RedisServer {
 public:
  explicit RedisServer(std::vector<std::string> more = {}) : more_(std::move(more)) { start(); }
  ~RedisServer() { kill(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  std::string socket() const { return scratch_ / "socket"; }
  std::string directory() const { return scratch_ / "data"; }

  void start() {
    std::filesystem::create_directories(directory());
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    log_.reset(ends[0]);
    const UniqueFd log_end(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) exec(log_end.get());
    ASSERT_GT(pid_, 0);
    ASSERT_TRUE(is_ready()) << text_;
  }
  void kill() {
    if (pid_ <= 0) return;
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void stop() const {
    (void)::kill(pid_, SIGSTOP);
    (void)::waitpid(pid_, nullptr, WUNTRACED);
  }
  void go_on() const { (void)::kill(pid_, SIGCONT); }

  // Runs a command and returns its reply as text: the elements of an array, each with a newline.
  std::string command(std::vector<std::string> words) const {
    const std::unique_ptr<redisContext, decltype(&::redisFree)> context(
        ::redisConnectUnix(socket().c_str()), ::redisFree);
    std::vector<const char*> arguments;
    std::vector<std::size_t> lengths;
    for (const std::string& word : words) {
      arguments.push_back(word.data());
      lengths.push_back(word.size());
    }
    const std::unique_ptr<void, decltype(&::freeReplyObject)> reply(
        ::redisCommandArgv(context.get(), static_cast<int>(words.size()), arguments.data(),
                           lengths.data()),
        ::freeReplyObject);
    return reply ? text_of(*static_cast<const redisReply*>(reply.get())) : "<no reply>";
  }
  // Returns a number of INFO's section `section`.
  long long info(const std::string& section, const std::string& field) const {
    const std::string text = command({"INFO", section});
    const std::size_t at = text.find(field);
    return at == std::string::npos ? 0 : std::stoll(text.substr(at + field.size()));
  }

 private:
  static std::string text_of(const redisReply& reply) {
    if (reply.type == REDIS_REPLY_INTEGER) return std::to_string(reply.integer);
    if (reply.type != REDIS_REPLY_ARRAY) return {reply.str, reply.len};
    std::string text;
    for (std::size_t i = 0; i < reply.elements; ++i) text += text_of(*reply.element[i]) + "\n";
    return text;
  }

  [[noreturn]] void exec(int log) const {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)::dup2(log, STDOUT_FILENO);
    std::vector<std::string> words = {
        kServerPath, "--port",    "0", "--unixsocket", socket(), "--appendonly", "no", "--dir",
        directory(), "--logfile", "",  "--save",       "",       "--daemonize",  "no"};
    words.insert(words.end(), more_.begin(), more_.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    (void)::execv(kServerPath, arguments.data());
    ::_exit(127);
  }

  // Reads the log until the server listens.
  bool is_ready() {
    text_.clear();
    const auto deadline = Clock::now() + 30s;
    while (text_.find("eady to accept connections") == std::string::npos) {
      pollfd entry{log_.get(), POLLIN, 0};
      std::array<char, 4096> bytes;
      if (Clock::now() > deadline || ::poll(&entry, 1, 30'000) != 1) return false;
      const ssize_t length = ::read(log_.get(), bytes.data(), bytes.size());
      if (length <= 0) return false;
      text_.append(bytes.data(), static_cast<std::size_t>(length));
    }
    return true;
  }

  std::vector<std::string> more_;
  Scratch scratch_;
  UniqueFd log_;
  std::string text_;
  pid_t pid_ = -1;
};

RedisOptions options_for(const std::string& socket) {
  RedisOptions options;
  options.unix_socket = socket;
  options.timeout = 20s;
  return options;
}

// Returns the error that `action` throws. Fails the test if there is none.
template <class Action>
TierError error_of(Action action) {
  try {
    action();
  } catch (const TierError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error;
  }
  ADD_FAILURE() << "no TierError";
  return {Kind::kRefused, "none"};
}
template <class Action>
Kind kind_of(Action action) {
  return error_of(action).kind();
}

template <class Action>
Clock::duration time_of(Action action) {
  const auto begin = Clock::now();
  action();
  return Clock::now() - begin;
}

bool holds_in_time(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + kSoon;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

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

class RedisTierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access(kServerPath, X_OK) != 0) GTEST_SKIP() << kServerPath << " is not installed";
    start_server();
  }
  void start_server(std::vector<std::string> more = {}) {
    server_ = std::make_unique<RedisServer>(std::move(more));
    tier_ = make_tier();
  }
  RedisOptions options() const { return options_for(server_->socket()); }
  std::unique_ptr<RedisTier> make_tier() const { return std::make_unique<RedisTier>(options()); }
  std::vector<std::unique_ptr<RedisTier>> make_tiers(std::size_t count) const {
    std::vector<std::unique_ptr<RedisTier>> tiers;
    while (tiers.size() < count) tiers.push_back(make_tier());
    return tiers;
  }
  // Returns when a process has subscribed to the key's channel.
  void await_waiter(const std::string& key) const {
    const std::string channel = "cacheshim:w:" + key;
    EXPECT_TRUE(holds_in_time([&] {
      return server_->command({"PUBSUB", "NUMSUB", channel}) == channel + "\n1\n";
    }));
  }

  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RedisTier> tier_;
};

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
  for (int i = 0; i < 2; ++i) {  // with a new connection, and with the same one again
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

TEST_F(RedisTierTest, TheScriptIsSentAgainAfterTheServerForgotIt) {
  (void)tier_->put_if_absent("a", "1");
  const long long evaluated = server_->info("commandstats", "cmdstat_eval:calls=");
  (void)tier_->put_if_absent("b", "1");
  EXPECT_EQ(server_->info("commandstats", "cmdstat_eval:calls="), evaluated);
  EXPECT_EQ(server_->command({"SCRIPT", "FLUSH"}), "OK");
  EXPECT_EQ(tier_->put_if_absent("c", "1"), PutOutcome::kStored);
  EXPECT_EQ(server_->info("commandstats", "cmdstat_eval:calls="), evaluated + 1);
}

TEST_F(RedisTierTest, AFullServerIsFullAndStillServesReads) {
  (void)tier_->put_if_absent("old", "1");
  ASSERT_TRUE(tier_->acquire("k", "owner", 60s));
  EXPECT_EQ(server_->command({"CONFIG", "SET", "maxmemory", "1"}), "OK");
  const auto connects_later = make_tier();
  for (RedisTier* const tier : {tier_.get(), connects_later.get()}) {
    const TierError error = error_of([&] { (void)tier->put_if_absent("new", "1"); });
    EXPECT_EQ(error.kind(), Kind::kFull);
    EXPECT_NE(std::string(error.what()).find("cannot store 'new' in Redis at "), std::string::npos);
    EXPECT_EQ(tier->get("new", kNoLimit), std::nullopt);
    EXPECT_EQ(tier->get("old", kNoLimit), "1");
    EXPECT_EQ(tier->keys_since("", 10).keys.size(), 1U);
    EXPECT_TRUE(tier->renew("k", "owner", 60s));
  }
  EXPECT_EQ(server_->command({"CONFIG", "SET", "maxmemory", "0"}), "OK");
  EXPECT_EQ(tier_->put_if_absent("new", "1"), PutOutcome::kStored);
}

TEST_F(RedisTierTest, AServerThatCannotSaveIsFull) {
  start_server({"--save", "3600 1"});
  std::filesystem::remove_all(server_->directory());
  (void)server_->command({"BGSAVE"});
  EXPECT_TRUE(holds_in_time([&] {
    return server_->command({"INFO", "persistence"}).find("rdb_last_bgsave_status:err") !=
           std::string::npos;
  }));
  const TierError error = error_of([&] { (void)tier_->put_if_absent("k", "1"); });
  EXPECT_EQ(error.kind(), Kind::kFull);
  EXPECT_NE(std::string(error.what()).find("MISCONF"), std::string::npos);
}

TEST_F(RedisTierTest, AReplicaRefusesWrites) {
  EXPECT_EQ(server_->command({"REPLICAOF", "127.0.0.1", "1"}), "OK");
  const TierError error = error_of([&] { (void)tier_->put_if_absent("k", "1"); });
  EXPECT_EQ(error.kind(), Kind::kRefused);
  EXPECT_NE(std::string(error.what()).find("READONLY"), std::string::npos);
}

TEST_F(RedisTierTest, WrongCredentialsAreRefused) {
  EXPECT_EQ(server_->command({"CONFIG", "SET", "requirepass", "right-secret"}), "OK");
  RedisOptions with_password = options();
  const auto refusal = [&] {
    RedisTier tier(with_password);
    EXPECT_EQ(kind_of([&] { tier.wait("k", 60s); }), Kind::kRefused);
    const TierError error = error_of([&] { (void)tier.get("k", 1); });
    EXPECT_EQ(error.kind(), Kind::kRefused);
    return std::string(error.what());
  };
  EXPECT_NE(refusal().find("NOAUTH"), std::string::npos);
  with_password.password = "wrong-secret";
  EXPECT_NE(refusal().find("WRONGPASS"), std::string::npos);
  EXPECT_EQ(refusal().find("secret"), std::string::npos);
  with_password.password = "right-secret";
  EXPECT_EQ(RedisTier(with_password).put_if_absent("k", "1"), PutOutcome::kStored);
}

TEST_F(RedisTierTest, TheDocumentedPermissionsAllowEveryCall) {
  std::vector<std::string> rules = {"ACL",        "SETUSER",      "job",         "on",
                                    ">pass word", "~cacheshim:*", "&cacheshim:*"};
  for (const char* command :
       {"del",     "eval",   "evalsha",     "exists",      "get",           "getrange", "incr",
        "pexpire", "pttl",   "publish",     "script|load", "set",           "strlen",   "subscribe",
        "time",    "unlink", "unsubscribe", "zadd",        "zrangebyscore", "zrem",     "select"})
    rules.push_back(std::string("+") + command);
  EXPECT_EQ(server_->command(rules), "OK");
  RedisOptions user = options();
  user.user = "job";
  user.password = "pass word";
  user.database = 3;
  RedisTier tier(user);
  EXPECT_EQ(tier.put_if_absent("k", "1"), PutOutcome::kStored);
  EXPECT_EQ(tier.get("k", 1), "1");
  EXPECT_EQ(tier.put_if_absent("empty", ""), PutOutcome::kStored);
  EXPECT_EQ(tier.get("empty", 1), "");
  EXPECT_EQ(tier.keys_since("", 10).keys.size(), 2U);
  EXPECT_TRUE(tier.remove("k"));
  EXPECT_TRUE(tier.acquire("k", "owner", 60s));
  EXPECT_TRUE(tier.renew("k", "owner", 60s));
  tier.wait("k", 50ms);
  tier.wait("k", 50ms);
  tier.release("k", "owner");
  user.prefix = "other:";
  EXPECT_EQ(kind_of([&] { (void)RedisTier(user).get("k", 1); }), Kind::kRefused);
  EXPECT_EQ(kind_of([&] { (void)RedisTier(user).put_if_absent("k", "1"); }), Kind::kRefused);
}

// All calls of a tier, each with a name for the messages. wait() needs a lease that somebody holds.
std::vector<std::pair<std::string, std::function<void(RedisTier&)>>> all_calls() {
  const auto object =
      std::make_shared<const std::string>(16'000'000, 'x');  // more than a socket's buffer
  return {{"get", [](RedisTier& tier) { (void)tier.get("k", 1); }},
          {"put", [](RedisTier& tier) { (void)tier.put_if_absent("k", "1"); }},
          {"large put", [object](RedisTier& tier) { (void)tier.put_if_absent("large", *object); }},
          {"remove", [](RedisTier& tier) { (void)tier.remove("k"); }},
          {"acquire", [](RedisTier& tier) { (void)tier.acquire("k", "owner", 60s); }},
          {"renew", [](RedisTier& tier) { (void)tier.renew("k", "owner", 60s); }},
          {"release", [](RedisTier& tier) { tier.release("k", "owner"); }},
          {"wait", [](RedisTier& tier) { tier.wait("held", 60s); }},
          {"keys_since", [](RedisTier& tier) { (void)tier.keys_since("", 10); }}};
}

TEST_F(RedisTierTest, EveryCallToAStoppedServerEndsByTheTimeout) {
  for (const bool is_connected : {false, true}) {
    for (const auto& [name, call] : all_calls()) {
      SCOPED_TRACE(name);
      RedisOptions impatient = options();
      impatient.timeout = kTimeout;
      RedisTier tier(impatient);
      if (is_connected) (void)tier.get("k", 1);
      server_->stop();
      const auto time =
          time_of([&] { EXPECT_EQ(kind_of([&] { call(tier); }), Kind::kUnavailable); });
      server_->go_on();
      EXPECT_GE(time, kTimeout);
      EXPECT_LE(time, kLatest);
      EXPECT_EQ(tier.get("absent", 1), std::nullopt);
    }
  }
}

TEST_F(RedisTierTest, AStoppedServerDoesNotProlongAWait) {
  ASSERT_TRUE(tier_->acquire("k", "owner", 60s));
  EXPECT_LT(time_of([&] {
              std::jthread waiter([tier = make_tier()] { tier->wait("k", 1s); });
              await_waiter("k");
              server_->stop();
            }),
            1200ms);
  // The timeout of the tier's other calls is 20 s.
  EXPECT_LE(time_of([&] { make_tier()->wait("k", kTimeout); }), kLatest);
  server_->go_on();
}

TEST_F(RedisTierTest, EveryCallToAKilledServerThrowsAndWorksAfterItsRestart) {
  for (const auto& [name, call] : all_calls()) {
    SCOPED_TRACE(name);
    (void)tier_->get("k", 1);
    server_->kill();
    EXPECT_EQ(kind_of([&] { call(*tier_); }), Kind::kUnavailable);
    server_->start();
    EXPECT_NO_THROW(call(*tier_));
  }
}

// Without MSG_NOSIGNAL, SIGPIPE would end the process.
TEST_F(RedisTierTest, AServerThatDiesDuringAPutThrows) {
  const std::string object(16'000'000, 'x');  // more than a socket's buffer
  (void)tier_->get("k", 1);
  server_->stop();
  std::jthread putter([&] {
    EXPECT_EQ(kind_of([&] { (void)tier_->put_if_absent("k", object); }), Kind::kUnavailable);
  });
  std::this_thread::sleep_for(
      100ms);  // the putter then waits for room in the buffer; if not, the test only sees less
  server_->kill();
}

TEST_F(RedisTierTest, AServerThatDiesDuringAWaitThrows) {
  ASSERT_TRUE(tier_->acquire("k", "owner", 60s));
  const auto waiter = make_tier();
  EXPECT_LT(time_of([&] {
              std::jthread thread(
                  [&] { EXPECT_EQ(kind_of([&] { waiter->wait("k", 60s); }), Kind::kUnavailable); });
              await_waiter("k");
              server_->kill();
            }),
            30s);
}

TEST_F(RedisTierTest, AConnectionThatTheServerClosedWhileIdleIsReplaced) {
  ASSERT_TRUE(tier_->acquire("held", "owner", 60s));
  tier_->wait("held", 50ms);
  for (const auto& [name, call] : all_calls()) {
    if (name == "wait") continue;
    SCOPED_TRACE(name);
    (void)server_->command({"CLIENT", "KILL", "TYPE", "normal"});
    (void)server_->command({"CLIENT", "KILL", "TYPE", "pubsub"});
    EXPECT_NO_THROW(call(*tier_));
    EXPECT_NO_THROW(tier_->wait("held", 10ms));
  }
}

TEST(RedisTierOverTcp, AHostNameLeadsToTheServer) {
  if (::access(kServerPath, X_OK) != 0) GTEST_SKIP() << kServerPath << " is not installed";
  const UniqueFd reserved(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on =
      1;  // with it, the server can bind the port while `reserved` keeps it, because nobody listens
  ASSERT_EQ(::setsockopt(reserved.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(reserved.get(), generic, length), 0);
  ASSERT_EQ(::getsockname(reserved.get(), generic, &length), 0);
  RedisOptions options;
  options.port = ntohs(address.sin_port);
  options.timeout = kTimeout;
  for (const char* host : {"127.0.0.1", "localhost"}) {
    options.host = host;
    EXPECT_LE(time_of([&] {
                EXPECT_EQ(kind_of([&] { (void)RedisTier(options).get("k", 1); }),
                          Kind::kUnavailable);
              }),
              kLatest);
  }
  RedisServer server({"--port", std::to_string(options.port), "--bind", "127.0.0.1"});
  for (const char* host : {"127.0.0.1", "localhost"}) {
    options.host = host;
    RedisTier tier(options);
    EXPECT_EQ(tier.put_if_absent(host, "1"), PutOutcome::kStored);
    server.stop();
    const auto time =
        time_of([&] { EXPECT_EQ(kind_of([&] { (void)tier.get(host, 1); }), Kind::kUnavailable); });
    server.go_on();
    EXPECT_LE(time, kLatest);
    EXPECT_EQ(tier.get(host, 1), "1");
  }
}

TEST(RedisTierOverTcp, AHostThatDoesNotExistIsUnavailableWithinTheTimeout) {
  RedisOptions options;
  options.host = "no-such-host.invalid";
  options.timeout = kTimeout;
  EXPECT_LE(time_of([&] {
              EXPECT_EQ(kind_of([&] { (void)RedisTier(options).get("k", 1); }), Kind::kUnavailable);
            }),
            kLatest);
}

TEST(RedisTierAddress, AnAbsentSocketIsUnavailableAndAPathThatIsTooLongIsRefused) {
  const Scratch scratch;
  RedisTier absent(options_for(scratch / "absent"));
  EXPECT_EQ(kind_of([&] { (void)absent.get("k", 1); }), Kind::kUnavailable);
  EXPECT_EQ(kind_of([&] { absent.wait("k", 60s); }), Kind::kUnavailable);
  RedisTier too_long(options_for(scratch / std::string(200, 'x')));
  EXPECT_EQ(kind_of([&] { (void)too_long.get("k", 1); }), Kind::kRefused);
}

// A server that sends `reply` as soon as a client connects, whatever the client sends. Then it sends the byte `filler`
// until the client closes the connection: one byte every 20 ms if `is_slow`.
class FakeServer {
 public:
  FakeServer(std::string reply, char filler, bool is_slow)
      : reply_(std::move(reply)), filler_(filler), is_slow_(is_slow) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket().copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    thread_ = std::jthread([this] { serve(); });
  }
  ~FakeServer() { (void)::shutdown(listener_.get(), SHUT_RDWR); }  // ends accept()
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string socket() const { return scratch_ / "socket"; }
  std::size_t sent_bytes() const { return sent_bytes_; }

 private:
  void serve() {
    for (;;) {
      const UniqueFd client(::accept(listener_.get(), nullptr, nullptr));
      if (!client) return;
      const std::string filler(is_slow_ ? 1 : 100'000, filler_);
      for (bool is_open = send(client, reply_); is_open; is_open = send(client, filler)) {
        if (is_slow_) std::this_thread::sleep_for(20ms);
      }
    }
  }
  bool send(const UniqueFd& client, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      sent_bytes_ += static_cast<std::size_t>(sent);
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  const std::string reply_;
  const char filler_;
  const bool is_slow_;
  Scratch scratch_;
  UniqueFd listener_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::atomic<std::size_t> sent_bytes_{0};
  std::jthread thread_;
};

const std::string kDigest = "$40\r\n" + std::string(40, 'd') + "\r\n";  // the reply to SCRIPT LOAD

TEST(RedisTierReplies, ASlowReplyDoesNotProlongACall) {
  for (const std::string& begin : {std::string(), kDigest, kDigest + "$1000\r\n"}) {
    FakeServer server(begin, 'x', true);
    for (const auto& [name, call] : all_calls()) {
      if (name != "get" && name != "wait") continue;
      SCOPED_TRACE(name);
      RedisOptions options = options_for(server.socket());
      options.timeout = kTimeout;
      const auto time = time_of([&] {
        EXPECT_EQ(kind_of([&] {
                    RedisTier tier(options);
                    call(tier);
                  }),
                  Kind::kUnavailable);
      });
      EXPECT_LE(time, kLatest);
    }
  }
}

TEST(RedisTierReplies, AReplyWithoutEndIsRejected) {
  const std::vector<std::string> begins = {"$1000000000\r\n",           "+",
                                           "*1000000000\r\n",           "*3\r\n*1000000\r\n",
                                           "*2147483647\r\n",           "*99999999999\r\n",
                                           "*20000\r\n$1000000000\r\n", "\xff\n"};
  for (const std::string& begin : begins) {
    SCOPED_TRACE(begin);
    FakeServer server(kDigest + begin, 'x', false);
    RedisTier tier(options_for(server.socket()));
    EXPECT_LT(time_of([&] {
                EXPECT_EQ(kind_of([&] { (void)tier.get("k", 100'000); }), Kind::kUnavailable);
              }),
              kSoon);
    EXPECT_LT(server.sent_bytes(), 2'000'000U);  // the limit of the reply and the socket's buffers
  }
}

TEST(RedisTierReplies, AReplyOfAnotherTypeIsRejected) {
  for (const std::string reply :
       {":1\r\n", "$-1\r\n", "+OK\r\n", "*0\r\n", "*1\r\n$-1\r\n", "*-1\r\n"}) {
    SCOPED_TRACE(reply);
    std::string replies = kDigest;
    for (int i = 0; i < 4; ++i) replies += reply;
    FakeServer server(replies, '\n', true);
    EXPECT_EQ(kind_of([&] { (void)RedisTier(options_for(server.socket())).get("k", 1); }),
              Kind::kUnavailable);
  }
}

// Few bytes of nested arrays could otherwise use much memory.
TEST(RedisTierReplies, ANestedArrayIsRejected) {
  FakeServer server(kDigest + "*1\r\n*1\r\n:1\r\n:1\r\n", '\n', true);
  RedisTier tier(options_for(server.socket()));
  const TierError error = error_of([&] { (void)tier.get("k", 1); });
  EXPECT_NE(std::string(error.what()).find("is not valid"), std::string::npos) << error.what();
}

TEST(RedisTierReplies, AScoreMayHaveAnExponent) {
  FakeServer server(kDigest + "*2\r\n$1\r\nk\r\n$8\r\n1.76e+15\r\n", '\n', true);
  RedisTier tier(options_for(server.socket()));
  EXPECT_EQ(tier.keys_since("", 10).position, "1760000000000000");
}

TEST(RedisTierReplies, ErrorsHaveTheirKind) {
  const std::vector<std::pair<std::string, Kind>> errors = {
      {"OOM command not allowed when used memory > 'maxmemory'.", Kind::kFull},
      {"MISCONF Redis is configured to save RDB snapshots", Kind::kFull},
      {"ERR Error running script (call to f_0123): @user_script:1: @user_script: 1: -OOM command not allowed",
       Kind::kFull},
      {"ERR Error running script (call to f_0123): @user_script:1: unknown", Kind::kRefused},
      {"LOADING Redis is loading the dataset in memory", Kind::kUnavailable},
      {"BUSY Redis is busy running a script.", Kind::kUnavailable},
      {"MASTERDOWN Link with MASTER is down", Kind::kUnavailable},
      {"CLUSTERDOWN The cluster is down", Kind::kUnavailable},
      {"ERR max number of clients reached", Kind::kUnavailable},
      {"NOPERM this user has no permissions", Kind::kRefused},
      {"READONLY You can't write against a read only replica.", Kind::kRefused},
      {"MOVED 1 10.0.0.1:6379", Kind::kRefused},
      {"ERR \x1b[31m" + std::string(5000, 'x'), Kind::kRefused}};
  for (const auto& [error, kind] : errors) {
    SCOPED_TRACE(error);
    FakeServer server(kDigest + "-" + error + "\r\n", '\n', true);
    const TierError thrown =
        error_of([&] { (void)RedisTier(options_for(server.socket())).put_if_absent("k", "1"); });
    EXPECT_EQ(thrown.kind(), kind);
    EXPECT_NE(std::string(thrown.what()).find(error.substr(0, 3)), std::string::npos);
    EXPECT_EQ(std::string(thrown.what()).find('\x1b'), std::string::npos);
    EXPECT_LT(std::string(thrown.what()).size(), 600U);
  }
}

TEST(RedisTierReplies, AnErrorDoesNotRepeatThePassword) {
  FakeServer server("-ERR unknown command 'AUTH', with args beginning with: 'my-secret'\r\n", '\n',
                    true);
  RedisOptions options = options_for(server.socket());
  options.password = "my-secret";
  const TierError error = error_of([&] { (void)RedisTier(options).get("k", 1); });
  EXPECT_EQ(error.kind(), Kind::kRefused);
  EXPECT_EQ(std::string(error.what()).find("my-secret"), std::string::npos);
}

}  // namespace
}  // namespace cacheshim::remote
