// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/ticker.h"

#include <algorithm>
#include <utility>

#include "store/sys/guard.h"

namespace cacheshim {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);  // a read waits for two ticks at most

}  // namespace

Ticker::Ticker(std::chrono::milliseconds idle_interval, std::function<void()> on_idle_interval)
    : idle_interval_(idle_interval),
      on_idle_interval_(std::move(on_idle_interval)),
      thread_([this] { run(); }) {}

Ticker::~Ticker() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  // No reader may outlive the libfuse session that it is completed through.
  for (const auto& watched : watched_) {
    if (const auto session = watched.lock()) session->close();
  }
}

void Ticker::watch(std::shared_ptr<ControlSession> session) {
  {
    const MutexLock lock(mutex_);
    watched_.push_back(std::move(session));
  }
  wake_.notify_all();
}

void Ticker::call_at(std::chrono::steady_clock::time_point when, std::function<void()> then) {
  {
    const MutexLock lock(mutex_);
    then_ = std::move(then);
    call_at_ = when;
  }
  wake_.notify_all();
}

bool Ticker::has_unread_answers() {
  return std::any_of(watched_.begin(), watched_.end(), [](const auto& watched) {
    const auto session = watched.lock();
    return session && session->has_unread_answer();
  });
}

void Ticker::wait_until_answered(std::chrono::milliseconds at_most) {
  constexpr std::chrono::milliseconds kPoll{5};
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  const MutexLock lock(mutex_);
  while (has_unread_answers() && std::chrono::steady_clock::now() < deadline) {
    (void)wake_.wait_for(mutex_, kPoll);
  }
}

std::optional<Ticker::Due> Ticker::wait_until_due(std::chrono::steady_clock::time_point idle_due) {
  const MutexLock lock(mutex_);
  if (stopping_) return std::nullopt;
  std::erase_if(watched_, [](const auto& watched) {
    const auto session = watched.lock();
    return !session || !session->is_waiting();
  });
  if (watched_.empty()) {
    (void)wake_.wait_until(mutex_, then_ ? std::min(idle_due, call_at_) : idle_due);
  } else {
    (void)wake_.wait_for(mutex_, kTick);
  }
  const bool is_due = then_ && std::chrono::steady_clock::now() >= call_at_;
  return Due{watched_, is_due ? std::exchange(then_, nullptr) : nullptr};
}

void Ticker::run() {
  auto idle_due = std::chrono::steady_clock::now() + idle_interval_;
  while (const auto due = wait_until_due(idle_due)) {
    if (due->then) (void)run_guarded("what was due", due->then);
    for (const auto& watched : due->sessions) {
      (void)run_guarded("a line of progress", [&] {
        if (const auto session = watched.lock()) session->tick();
      });
    }
    if (std::chrono::steady_clock::now() >= idle_due) {
      (void)run_guarded("tending jobs and the store", on_idle_interval_);
      idle_due = std::chrono::steady_clock::now() + idle_interval_;
    }
  }
}

}  // namespace cacheshim
