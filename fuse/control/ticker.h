// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "fuse/control/control_session.h"
#include "store/sys/mutex.h"

namespace cacheshim {

// A thread for timed work: ticks of control files that are being read, one call at a given time, and the regular check
// for idle jobs. Sleeps while nothing is due. Thread-safe.
class Ticker {
 public:
  Ticker(std::chrono::milliseconds idle_interval, std::function<void()> on_idle_interval);
  ~Ticker();
  void watch(std::shared_ptr<ControlSession> session);
  // Calls `then` at `when`. Replaces the call that was set before; an empty function only cancels it.
  void call_at(std::chrono::steady_clock::time_point when, std::function<void()> then);
  // Waits until all clients have read the answers that were given to them. Does not wait for a request without an
  // answer, such as the caller's own request.
  void wait_until_answered(std::chrono::milliseconds at_most);

 private:
  void run();
  bool has_unread_answers() REQUIRES(mutex_);
  struct Due {
    std::vector<std::weak_ptr<ControlSession>> sessions;
    std::function<void()> then;
  };
  // Returns nothing once the ticker stops.
  std::optional<Due> wait_until_due(std::chrono::steady_clock::time_point idle_due)
      EXCLUDES(mutex_);

  const std::chrono::milliseconds idle_interval_;
  const std::function<void()> on_idle_interval_;
  Mutex mutex_{LockRank::kTicker};
  CondVar wake_;  // wakes the thread, and wait_until_answered()
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<ControlSession>> watched_ GUARDED_BY(mutex_);
  std::function<void()> then_ GUARDED_BY(mutex_);  // due at call_at_
  std::chrono::steady_clock::time_point call_at_ GUARDED_BY(mutex_){};
  std::thread thread_;
};

}  // namespace cacheshim
