// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/job_life.h"

#include <optional>
#include <utility>

namespace cacheshim {

void JobLife::count_change() {
  if (changes_ != nullptr) ++*changes_;
}

void JobLife::begin(std::string cycle, std::time_t started) {
  const MutexLock lock(mutex_);
  cycle_ = std::move(cycle);
  started_ = started;
  outcome_ = Outcome::kNone;
  active_ = true;
  count_change();
}

PendingReplies JobLife::end(Outcome outcome) {
  const MutexLock lock(mutex_);
  outcome_ = outcome;
  active_ = false;
  count_change();
  return take_waiting(outcome);
}

PendingReplies JobLife::take_waiting(std::optional<Outcome> outcome) {
  PendingReplies replies;
  for (Waiting& waiting : std::exchange(waiting_, {})) {
    replies.add([then = std::move(waiting.then), outcome] { then(outcome); });
  }
  return replies;
}

PendingReplies JobLife::end_waits() {
  const MutexLock lock(mutex_);
  return take_waiting(std::nullopt);
}

void JobLife::on_end(std::weak_ptr<const void> waiter, OnEnd then) {
  std::optional<Outcome> outcome;
  {
    const MutexLock lock(mutex_);
    if (active_) {
      std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.waiter.expired(); });
      waiting_.push_back({std::move(waiter), std::move(then)});
      return;
    }
    outcome = outcome_.load();
  }
  then(outcome);
}

std::string JobLife::cycle() const {
  const MutexLock lock(mutex_);
  return cycle_;
}

}  // namespace cacheshim
