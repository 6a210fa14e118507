// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/ticker.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "store/threads/guard.h"

namespace cacheshim {
namespace {

using Clock = EventLoop::Clock;

constexpr std::chrono::milliseconds kProgressTick{100};  // a read waits for two ticks at most

}  // namespace

Ticker::Ticker(EventLoop& loop)
    : task_(loop, "ticking control files", [this](const auto&) { return tick(); }) {}

void Ticker::stop() {
  task_.stop();
  std::vector<std::weak_ptr<ControlSession>> watched;
  {
    const MutexLock lock(mutex_);
    watched.swap(watched_);
  }
  for (const auto& one : watched) {
    if (const auto session = one.lock()) session->close();
  }
}

void Ticker::watch(std::shared_ptr<ControlSession> session) {
  {
    const MutexLock lock(mutex_);
    if (watched_.empty()) next_tick_ = Clock::now() + kProgressTick;
    watched_.push_back(std::move(session));
  }
  task_.wake();
}

bool Ticker::has_unread_answers() {
  const MutexLock lock(mutex_);
  return std::any_of(watched_.begin(), watched_.end(), [](const auto& watched) {
    const auto session = watched.lock();
    return session && session->has_unread_answer();
  });
}

void Ticker::wait_until_answered(std::chrono::milliseconds at_most) {
  constexpr std::chrono::milliseconds kPoll{5};
  const auto deadline = Clock::now() + at_most;
  while (has_unread_answers() && Clock::now() < deadline) std::this_thread::sleep_for(kPoll);
}

// Returns the time of the next tick.
Clock::time_point Ticker::tick() {
  std::vector<std::weak_ptr<ControlSession>> watched;
  {
    const MutexLock lock(mutex_);
    std::erase_if(watched_, [](const auto& one) {
      const auto session = one.lock();
      return !session || !session->is_waiting();
    });
    if (watched_.empty()) return EventLoop::kNever;
    if (Clock::now() < next_tick_) return next_tick_;
    watched = watched_;
    next_tick_ = Clock::now() + kProgressTick;
  }
  for (const auto& one : watched) {
    (void)run_guarded("a line of progress", [&] {
      if (const auto session = one.lock()) session->tick();
    });
  }
  return Clock::now() + kProgressTick;
}

}  // namespace cacheshim
