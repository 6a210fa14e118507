// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/support/redis_fixture.h"

namespace cacheshim::remote::redis_test {
namespace {

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

// Returns all calls of a tier, each with a name for the messages. wait() blocks only while a process holds the lease of
// the key "held".
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
      server_->resume();
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
  // wait() ends by its own timeout, although the tier's timeout for its other calls is 20 s.
  EXPECT_LE(time_of([&] { make_tier()->wait("k", kTimeout); }), kLatest);
  server_->resume();
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
      // By then, the putter waits for room in the socket's buffer; if not, the test covers less.
      100ms);
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
      // Lets the server bind the port that `reserved` is bound to, because `reserved` does not listen.
      1;
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
    server.resume();
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

}  // namespace
}  // namespace cacheshim::remote::redis_test
