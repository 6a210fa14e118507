// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "store/sys/process.h"

// Determines whether a process that has begun a build still works on it, from the data in /proc
// about the process and its descendants.
namespace cacheshim {

struct BuilderWork {
  bool has_ended = false;  // the thread that began the build has exited
  // The thread that began the build, or a descendant, runs, waits for a processor or a disk, or is
  // in a system call that may publish the build. So a builder on a busy machine is not idle.
  bool is_running = false;
  // Processor time so far, per process.
  std::map<pid_t, std::chrono::nanoseconds> used = {};
};

// Returns the work of the process `builder`, whose thread `thread` has begun the build. Returns no
// value if /proc does not show its children, as in a kernel without CONFIG_PROC_CHILDREN. Takes
// some 50 µs.
std::optional<BuilderWork> work_of(pid_t builder, const Process& thread);

// The work of one builder over time. Not thread-safe.
class BuilderActivity {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kIdleFor{1};
  // A builder that does less work than this (note()) within kIdleFor is idle. The value is not 0,
  // because threads that only wait wake up now and then.
  static constexpr std::chrono::milliseconds kLeastWork{50};

  // Records the builder's work until `now`: its processor time, and, if it is running, the whole
  // time since the last call. Returns true if the builder has been idle for kIdleFor.
  bool note(Time now, const BuilderWork& work);
  void forget() { *this = {}; }

 private:
  std::map<pid_t, std::chrono::nanoseconds> used_;
  std::chrono::nanoseconds total_{0};
  std::deque<std::pair<Time, std::chrono::nanoseconds>> history_;  // total_ over the last kIdleFor
};

}  // namespace cacheshim
