// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "remote/engines/redis_tier.h"

// Measures how long a Redis server takes to answer many daemons. Each daemon is a thread with its own connection. At
// each interval, it asks for the new keys of the catalogue, and acquires and releases the lease of a key that no other
// daemon uses. At the end, all daemons claim the same keys simultaneously, and exactly one of them must get each lease.
namespace cacheshim::remote {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kContested = 20;  // keys that all daemons claim

struct Options {
  std::string socket;
  unsigned daemons = 1000;
  unsigned seconds = 10;
  unsigned interval_ms = 1000;  // between two rounds of a daemon's calls
};

// The durations of one kind of call, by all daemons.
class Durations {
 public:
  template <class Call>
  void measure(const Call& call) {
    const auto begin = Clock::now();
    call();
    const auto took = Clock::now() - begin;
    const std::lock_guard lock(mutex_);
    all_.push_back(took);
  }
  double at_us(double share) {
    std::sort(all_.begin(), all_.end());
    const auto index = static_cast<std::size_t>(share * static_cast<double>(all_.size() - 1));
    return std::chrono::duration<double, std::micro>(all_.at(index)).count();
  }
  std::string text() {
    return fmt::format("median {:6.0f} µs, p99 {:6.0f} µs", at_us(0.5), at_us(0.99));
  }

 private:
  std::mutex mutex_;
  std::vector<Clock::duration> all_;
};

struct Results {
  Durations catalogue;
  Durations lease;
  std::vector<std::atomic<int>> winners = std::vector<std::atomic<int>>(kContested);
};

void live(const Options& options, unsigned number, Clock::time_point begin, Results& results) {
  RedisOptions redis;
  redis.unix_socket = options.socket;
  redis.timeout = 30s;
  RedisTier tier(redis);
  const std::string owner = fmt::format("daemon-{}", number);
  std::string position = tier.keys_since("", 1000).position;  // also connects
  std::mt19937 random(number);
  const std::chrono::microseconds interval = std::chrono::milliseconds(options.interval_ms);
  auto next = begin + std::chrono::microseconds(random() % options.interval_ms * 1000);
  const auto end = begin + options.seconds * 1s;
  for (unsigned round = 0; next < end; ++round, next += interval) {
    std::this_thread::sleep_until(next);
    results.catalogue.measure([&] { position = tier.keys_since(position, 1000).position; });
    const std::string key = fmt::format("{}/{}", owner, round);
    results.lease.measure([&] {
      (void)tier.acquire(key, owner, 10s);
      tier.release(key, owner);
    });
  }
}

void compete(const Options& options, unsigned number, std::barrier<>& together, Results& results) {
  RedisOptions redis;
  redis.unix_socket = options.socket;
  redis.timeout = 30s;
  RedisTier tier(redis);
  for (std::size_t i = 0; i < kContested; ++i) {
    together.arrive_and_wait();
    const std::string owner = fmt::format("daemon-{}", number);
    const std::string key = fmt::format("contested/{}", i);
    const bool has_won = tier.acquire(key, owner, 60s).has_value();
    if (has_won) ++results.winners[i];
    together.arrive_and_wait();
    if (has_won) tier.release(key, owner);
  }
}

int run(const Options& options) {
  Results results;
  std::vector<std::jthread> threads;
  const auto begin = Clock::now() + 1s;
  for (unsigned i = 0; i < options.daemons; ++i)
    threads.emplace_back([&, i] { live(options, i, begin, results); });
  threads.clear();
  std::barrier<> together(options.daemons);
  for (unsigned i = 0; i < options.daemons; ++i)
    threads.emplace_back([&, i] { compete(options, i, together, results); });
  threads.clear();
  const auto won_once = std::count(results.winners.begin(), results.winners.end(), 1);
  fmt::print(
      "{:5} daemons: catalogue {}; lease and release {}; {} of {} contested leases have one winner\n",
      options.daemons, results.catalogue.text(), results.lease.text(), won_once, kContested);
  return won_once == kContested ? 0 : 1;
}

}  // namespace
}  // namespace cacheshim::remote

int main(int argc, char** argv) {
  cacheshim::remote::Options options;
  CLI::App app("Measures how long a Redis server takes to answer many daemons.");
  app.add_option("--socket", options.socket, "The server's socket")->required();
  app.add_option("--daemons", options.daemons, "How many daemons")->check(CLI::Range(1, 10000));
  app.add_option("--seconds", options.seconds, "How long they live")->check(CLI::Range(1, 600));
  app.add_option("--interval-ms", options.interval_ms, "Between two rounds of a daemon's calls")
      ->check(CLI::Range(1, 60'000));
  CLI11_PARSE(app, argc, argv);
  return cacheshim::remote::run(options);
}
