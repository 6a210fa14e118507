// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/support/redis_fixture.h"

namespace cacheshim::remote::redis_test {
namespace {

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
  const std::vector<std::function<void(RedisTier&)>> calls = {
      [](RedisTier& tier) { (void)tier.get("k", kNoLimit); },
      [](RedisTier& tier) { tier.wait("k", kTimeout * 3); },
  };
  for (const std::string& begin : {std::string(), kDigest, kDigest + "$1000\r\n"}) {
    FakeServer server(begin, 'x', true);
    for (const auto& call : calls) {
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
    // At most the reply's limit and the socket's buffers.
    EXPECT_LT(server.sent_bytes(), 2'000'000U);
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

// Otherwise, a few bytes of nested arrays could use much memory.
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
}  // namespace cacheshim::remote::redis_test
