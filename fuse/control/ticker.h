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

// A thread for what comes due: ticks of control files that somebody reads, and the regular look for
// jobs that are over. Sleeps as long as there is nothing to do.
class Ticker {
 public:
  Ticker(std::chrono::milliseconds idle_interval, std::function<void()> on_idle_interval);
  ~Ticker();
  void watch(std::shared_ptr<ControlSession> session);
  // Calls `then` at that time, in place of what it was to call before; never, with nothing.
  void call_at(std::chrono::steady_clock::time_point when, std::function<void()> then);
  // Waits until those who were answered have fetched it. Who asks for that is not waited for.
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
  CondVar wake_;  // of the thread, and of those who wait for answers
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<ControlSession>> watched_ GUARDED_BY(mutex_);
  std::function<void()> then_ GUARDED_BY(mutex_);  // due at call_at_
  std::chrono::steady_clock::time_point call_at_ GUARDED_BY(mutex_){};
  std::thread thread_;
};

}  // namespace cacheshim
