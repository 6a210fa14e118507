// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "fuse/control/control_session.h"

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

  const std::chrono::milliseconds idle_interval_;
  const std::function<void()> on_idle_interval_;
  std::mutex mutex_;
  std::condition_variable wake_;  // of the thread, and of those who wait for answers
  bool stopping_ = false;
  std::vector<std::weak_ptr<ControlSession>> watched_;
  std::function<void()> then_;  // due at call_at_
  std::chrono::steady_clock::time_point call_at_{};
  std::thread thread_;
};

}  // namespace cacheshim
