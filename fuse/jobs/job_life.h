// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fuse/requests/pending_replies.h"
#include "store/layer/layer.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Records whether a job is active, how it has ended, and which requests wait for its end. A job that has ended can
// begin again. Thread-safe.
class JobLife {
 public:
  // Counts beginnings and ends in `changes`, if it is not null.
  explicit JobLife(std::atomic<std::uint64_t>* changes = nullptr) : changes_(changes) {}

  void begin(std::string cycle, std::time_t started) EXCLUDES(mutex_);
  // Ends the job. Returns the replies to the requests that wait for the end. Another thread may
  // begin the job again immediately.
  PendingReplies end(Outcome outcome) EXCLUDES(mutex_);

  bool is_active() const { return active_.load(); }
  Outcome outcome() const { return outcome_.load(); }  // kNone: not ended, or ended with neither success nor failure
  std::time_t started() const { return started_.load(); }
  std::string cycle() const EXCLUDES(mutex_);

  // Calls `then` once: when the job ends, or immediately if the job is not active. Passes no outcome if end_waits()
  // comes first, which ends the wait although the job continues. May drop `then` once `waiter` has been destroyed.
  using OnEnd = std::function<void(std::optional<Outcome>)>;
  void on_end(std::weak_ptr<const void> waiter, OnEnd then) EXCLUDES(mutex_);
  // Ends all present waits without an outcome, and returns their replies. Does not prevent later waits.
  PendingReplies end_waits() EXCLUDES(mutex_);

 private:
  PendingReplies take_waiting(std::optional<Outcome> outcome) REQUIRES(mutex_);
  void count_change();

  std::atomic<std::uint64_t>* const changes_;
  std::atomic<bool> active_{false};
  std::atomic<Outcome> outcome_{Outcome::kNone};
  std::atomic<std::time_t> started_{0};
  mutable Mutex mutex_;
  std::string cycle_ GUARDED_BY(mutex_) = "0";
  struct Waiting {
    std::weak_ptr<const void> waiter;
    OnEnd then;
  };
  std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
