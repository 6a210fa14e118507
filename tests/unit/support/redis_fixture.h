// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "remote/engines/redis_tier.h"
#include "tests/unit/support/owned_process.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim::remote::redis_test {

using Clock = std::chrono::steady_clock;
using Kind = TierError::Kind;
using namespace std::chrono_literals;

inline constexpr const char* kServerPath = "/usr/bin/redis-server";
inline constexpr std::size_t kNoLimit = std::size_t{1} << 30;
inline constexpr auto kTimeout = 1000ms;  // the timeout of a call that a test lets time out
// A call with that timeout ends by then, even on a busy machine.
inline constexpr auto kLatest = kTimeout * 6;
// A call that takes milliseconds on an idle machine ends by then.
inline constexpr auto kSoon = 10s;

// A Redis server on a Unix socket, without persistence. The destructor kills the server. The kernel kills the server if
// this process dies.
class RedisServer : public OwnedProcess {
 public:
  explicit RedisServer(std::vector<std::string> more = {}) : more_(std::move(more)) { start(); }
  ~RedisServer() { kill(); }  // before the destructor of scratch_ removes its directory

  std::string socket() const { return scratch_ / "socket"; }
  std::string directory() const { return scratch_ / "data"; }

  void start() {
    std::filesystem::create_directories(directory());
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    log_.reset(ends[0]);
    const UniqueFd log_end(ends[1]);
    own(::fork());
    if (pid() == 0) exec(log_end.get());
    ASSERT_GT(pid(), 0);
    ASSERT_TRUE(is_ready()) << text_;
  }
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
  // Returns the number that follows the text `field` in INFO's section `section`, or 0 if the text is absent.
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

  // Returns true once the log says that the server listens. Returns false if the log ends, or after 30 s.
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
};

inline RedisOptions options_for(const std::string& socket) {
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

inline bool holds_in_time(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + kSoon;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// A test with a server and a tier.
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

}  // namespace cacheshim::remote::redis_test
