// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "remote/engines/remote_tier.h"
#include "remote/wire.h"

namespace cacheshim::remote {

// Answers the requests of one peer (wire.h) on several threads, each with its own connection to the engine. Requests
// that only wait have separate threads, so that they never delay the others.
class Server {
 public:
  using MakeTier = std::function<std::unique_ptr<RemoteTier>()>;
  static constexpr std::size_t kWorkers = 4;
  static constexpr std::size_t kMostWaiters = 32;  // threads; started as they are needed
  static constexpr std::size_t kMostQueued =
      4096;  // of each kind; beyond that, requests fail with "unavailable"

  // `socket` is borrowed.
  Server(int socket, MakeTier make_tier);
  // Blocks until the peer has closed the socket, or has sent an invalid message.
  void serve();

 private:
  struct Pool {
    std::size_t most_threads;
    std::deque<Message> queue{};
    std::size_t idle = 0;
    std::size_t threads = 0;
    std::condition_variable wakes{};
  };
  void post(Pool& pool, Message request);
  [[noreturn]] void work(Pool& pool);
  void answer(RemoteTier& tier, const Message& request) const;
  void reply(nlohmann::json json, const Message& request, int file = -1) const;

  const int socket_;
  const MakeTier make_tier_;
  std::mutex mutex_;
  Pool workers_{.most_threads = kWorkers};
  Pool waiters_{.most_threads = kMostWaiters};
};

}  // namespace cacheshim::remote
