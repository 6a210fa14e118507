// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "store/base/base_watch.h"
#include "store/threads/event_loop.h"

// The implementations of the two modes of base_watch.h, and their common code. Internal to store/.
namespace cacheshim {

// Both return null if the kernel does not support the mode, or this process lacks the privilege.
std::unique_ptr<BaseWatch> start_fanotify(EventLoop& loop, const std::vector<int>& directories,
                                          const BaseWatch::Callback& changed);
std::unique_ptr<BaseWatch> start_inotify(EventLoop& loop, const std::vector<int>& directories,
                                         const BaseWatch::Callback& changed);

// Adds `change`. Replaces the name of a marker with the name that the marker hides.
void add_change(std::vector<BaseChange>& changes, BaseChange change);

// Reads events from a descriptor, on the loop's thread. Pauses for 1 ms after each batch, so that a busy file system
// causes at most 1,000 wake-ups a second instead of one per event. `read` must read only one batch; the loop's other
// tasks run in the pauses.
class EventReader {
 public:
  EventReader(EventLoop& loop, int events, std::function<void()> read)
      : events_(events),
        read_(std::move(read)),
        task_(loop, "reading events of the base", [this](const auto& readable) {
          return run(!readable.empty());
        }) {
    task_.wake();
  }

 private:
  static constexpr std::chrono::milliseconds kPause{1};
  static constexpr std::chrono::milliseconds kPoll{100};

  // Reads a batch of events; after the pause, waits for the next event. If `events_` cannot be watched, polls it every
  // 100 ms.
  EventLoop::Clock::time_point run(bool has_events) {
    if (!has_events && task_.watch(events_, 0)) return EventLoop::kNever;
    read_();
    return EventLoop::Clock::now() + (has_events ? kPause : kPoll);
  }

  const int events_;
  const std::function<void()> read_;
  EventLoop::Task task_;
};

}  // namespace cacheshim
