// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "fuse/control/control_session.h"
#include "store/threads/event_loop.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Calls ControlSession::tick() every 100 ms for each watched session whose answer has not been read, so that its reader
// gets progress lines. Thread-safe.
class Ticker {
 public:
  explicit Ticker(EventLoop& loop);
  ~Ticker() { stop(); }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  void watch(std::shared_ptr<ControlSession> session) EXCLUDES(mutex_);
  // Blocks for up to `at_most` until all clients have read the answers that were given to them. Does not wait for a
  // request without an answer, such as the caller's own request.
  void wait_until_answered(std::chrono::milliseconds at_most) EXCLUDES(mutex_);
  // Closes the sessions. Call while the libfuse session exists, because pending reads are completed through it.
  // Idempotent.
  void stop() EXCLUDES(mutex_);

 private:
  EventLoop::Clock::time_point tick() EXCLUDES(mutex_);
  bool has_unread_answers() EXCLUDES(mutex_);

  Mutex mutex_{LockRank::kTicker};
  std::vector<std::weak_ptr<ControlSession>> watched_ GUARDED_BY(mutex_);
  EventLoop::Clock::time_point next_tick_ GUARDED_BY(mutex_){};
  EventLoop::Task task_;  // keep last: the task uses the other members
};

}  // namespace cacheshim
