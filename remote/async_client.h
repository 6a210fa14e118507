// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "remote/client.h"
#include "remote/helper_process.h"
#include "remote/wire.h"
#include "store/threads/mutex.h"

namespace cacheshim::remote {

// Sends requests to a helper without waiting for the replies, for the daemon. Starts the helper, and starts it again
// when it has ended. Thread-safe, except stop().
class AsyncClient {
 public:
  using StartHelper = std::function<std::variant<HelperProcess, RemoteError>()>;
  // Called once for each request, on the client's thread, with no lock held. Must not block. If the helper ends before
  // it has replied, the outcome is an error.
  using OnReply = std::function<void(Outcome<Message>)>;
  struct Events {
    std::function<void()> on_started;  // a helper is running
    // A helper could not be started, or has ended, also after restart(). Not called if stop() ends the helper.
    std::function<void(const RemoteError&)> on_ended;
  };
  // The pause before a restart is kFirstRestart, and doubles with each restart up to kLastRestart.
  static constexpr std::chrono::seconds kFirstRestart{1};
  static constexpr std::chrono::seconds kLastRestart{60};
  // After a helper has run for this time, the next one starts after kFirstRestart again.
  static constexpr std::chrono::seconds kLongRun{60};

  // If a helper has not replied within the engine's timeout and this additional time, the caller of send() should call
  // restart().
  static constexpr std::chrono::seconds kAnswerMargin{5};

  // Starts the client's thread, which calls `start` and the events. Throws std::system_error.
  AsyncClient(StartHelper start, Events events);
  ~AsyncClient() { stop(); }
  AsyncClient(const AsyncClient&) = delete;
  AsyncClient& operator=(const AsyncClient&) = delete;

  // Returns false, and never calls `on_reply`, if the request cannot be sent: no helper is running, its socket is full,
  // or the request is too long. `file` is only borrowed; -1: none.
  [[nodiscard]] bool send(nlohmann::json request, OnReply on_reply, int file = -1) EXCLUDES(mutex_);
  // Sends a request as send() does, and blocks until the reply. If there is no reply after `timeout` and kAnswerMargin,
  // restarts the helper and returns an error. Polls `is_given_up`, and returns an error once that returns true. Must
  // not be called on the client's thread.
  Outcome<Message> call(nlohmann::json request, std::chrono::milliseconds timeout,
                        const std::function<bool()>& is_given_up, int file = -1) EXCLUDES(mutex_);
  bool is_running() const EXCLUDES(mutex_);
  // Whether the engine of the running helper has leases.
  bool has_leases() const EXCLUDES(mutex_);
  // Ends the helper; the client starts another one after a pause.
  void restart() EXCLUDES(mutex_);
  // Ends the helper, calls `on_reply` of each request that has no reply yet, and ends the thread. Idempotent.
  void stop() EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  bool pause(std::chrono::seconds time) EXCLUDES(mutex_);
  void receive(int socket) EXCLUDES(mutex_);
  OnReply take(const Message& reply) EXCLUDES(mutex_);
  void end_helper() EXCLUDES(mutex_);

  const StartHelper start_;
  const Events events_;
  mutable Mutex mutex_;
  CondVar stops_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::optional<HelperProcess> helper_ GUARDED_BY(mutex_);
  std::uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, OnReply> requests_ GUARDED_BY(mutex_);  // those without a reply, by id
  std::thread thread_;
};

}  // namespace cacheshim::remote
