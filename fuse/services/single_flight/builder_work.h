// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "store/sys/process.h"

// Whether a process that has begun a build still works at it, from the data in /proc about it and
// its descendants.
namespace cacheshim {

struct BuilderWork {
  bool has_ended = false;  // the thread that began the build
  // That thread, or a descendant, currently has a processor, waits for one or for a disk, or
  // publishes its build: a builder on a busy machine is not idle.
  bool is_running = false;
  // Processor time so far, per process.
  std::map<pid_t, std::chrono::nanoseconds> used = {};
};

// `thread` is one of the process `builder`. Returns no value if /proc does not show it, as in a
// kernel without CONFIG_PROC_CHILDREN. Takes some 50 µs.
std::optional<BuilderWork> work_of(pid_t builder, const Process& thread);

// The work of one builder over time. Not thread-safe.
class BuilderActivity {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kIdleFor{1};
  // A builder with less than this in kIdleFor is idle: threads that only wait wake up now and then.
  static constexpr std::chrono::milliseconds kLeastWork{50};

  // Records the builder's processor time until `now`. Returns whether it has been idle for
  // kIdleFor.
  bool note(Time now, const BuilderWork& work);
  void forget() { *this = {}; }

 private:
  std::map<pid_t, std::chrono::nanoseconds> used_;
  std::chrono::nanoseconds total_{0};
  std::deque<std::pair<Time, std::chrono::nanoseconds>> history_;  // of total_, kIdleFor back
};

}  // namespace cacheshim
