// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "store/sys/process.h"

// Whether a process that has begun a build still works at it, by what /proc tells of it and its descendants.
namespace cacheshim {

struct BuilderWork {
  bool has_ended = false;  // the thread that began the build
  // At this moment that thread, or a descendant, has a processor, waits for one or for a disk, or publishes what it has
  // built: a builder on a busy machine is not idle.
  bool is_running = false;
  // Processor time so far, by process.
  std::map<pid_t, std::chrono::nanoseconds> used = {};
};

// `thread` is one of the process `builder`. No value where /proc does not tell, as of a kernel without
// CONFIG_PROC_CHILDREN. Takes some 50 µs.
std::optional<BuilderWork> work_of(pid_t builder, const Process& thread);

// The work of one builder in the course of time. Not thread-safe.
class BuilderActivity {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kIdleFor{1};
  // Less in kIdleFor is no work: threads that only wait wake up now and then.
  static constexpr std::chrono::milliseconds kLeastWork{50};

  // Notes what the builder has used by `now`. Returns whether it has been idle for kIdleFor.
  bool note(Time now, const BuilderWork& work);
  void forget() { *this = {}; }

 private:
  std::map<pid_t, std::chrono::nanoseconds> used_;
  std::chrono::nanoseconds total_{0};
  std::deque<std::pair<Time, std::chrono::nanoseconds>> history_;  // of total_, kIdleFor back
};

}  // namespace cacheshim
