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
    // It could not be started, or has ended by itself.
    std::function<void(const RemoteError&)> on_ended;
  };
  static constexpr std::chrono::seconds kFirstRestart{1};  // doubles with each restart, up to:
  static constexpr std::chrono::seconds kLastRestart{60};
  // After a helper has run for this time, the next one starts after kFirstRestart again.
  static constexpr std::chrono::seconds kLongRun{60};

  // The caller should restart() a helper that has not answered for this time longer than the engine's timeout.
  static constexpr std::chrono::seconds kAnswerMargin{5};

  // Starts the client's thread, which calls `start` and the events. Throws std::system_error.
  AsyncClient(StartHelper start, Events events);
  ~AsyncClient() { stop(); }
  AsyncClient(const AsyncClient&) = delete;
  AsyncClient& operator=(const AsyncClient&) = delete;

  // Returns false, and will not call `on_reply`, if no helper is running or it does not read its requests. `file` is
  // only borrowed; -1: none.
  [[nodiscard]] bool send(nlohmann::json request, OnReply on_reply, int file = -1) EXCLUDES(mutex_);
  // As send(), but waits for the reply. If there is none `timeout` and kAnswerMargin later, restarts the helper. Gives
  // up, with an error, soon after `is_given_up` has returned true. Do not call this on the client's thread.
  Outcome<Message> call(nlohmann::json request, std::chrono::milliseconds timeout,
                        const std::function<bool()>& is_given_up, int file = -1) EXCLUDES(mutex_);
  bool is_running() const EXCLUDES(mutex_);
  // Whether the engine of the running helper has leases.
  bool has_leases() const EXCLUDES(mutex_);
  // Ends the helper; the client starts another one.
  void restart() EXCLUDES(mutex_);
  // Ends the helper, calls the functions of the requests without reply, and ends the thread. Idempotent.
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
  std::map<std::uint64_t, OnReply> requests_ GUARDED_BY(mutex_);  // those without reply
  std::thread thread_;
};

}  // namespace cacheshim::remote
