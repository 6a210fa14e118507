// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "store/sys/process.h"

// Determines from /proc whether a process that has begun a build, or one of its descendants, is still working on it.
namespace cacheshim {

struct BuilderWork {
  bool has_ended = false;  // whether the thread that began the build has exited
  // Whether the thread that began the build, or a descendant process, is running, is waiting for a processor or a disk,
  // or is in a system call that may publish the build. So a builder on a busy machine does not count as idle.
  bool is_running = false;
  // The processor time that each process has used so far.
  std::map<pid_t, std::chrono::nanoseconds> used = {};
};

// Returns the work of the process `builder`, whose thread `thread` has begun the build. Returns nullopt if /proc does
// not show the thread's children, for example because the kernel was built without CONFIG_PROC_CHILDREN. Takes about 50
// µs.
std::optional<BuilderWork> work_of(pid_t builder, const Process& thread);

// The work of one builder over time. Not thread-safe.
class BuilderActivity {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kIdleFor{1};
  // A builder is idle if it does less work than this within kIdleFor; note() defines the work. The value is not 0,
  // because even threads that only wait wake up now and then.
  static constexpr std::chrono::milliseconds kLeastWork{50};

  // Records the builder's work until `now`: the processor time that it has used and, if it is running, the whole time
  // since the last call. Returns true if the builder has been idle for kIdleFor.
  bool note(Time now, const BuilderWork& work);
  void forget() { *this = {}; }

 private:
  std::map<pid_t, std::chrono::nanoseconds> used_;
  std::chrono::nanoseconds total_{0};
  std::deque<std::pair<Time, std::chrono::nanoseconds>> history_;  // total_ over the last kIdleFor
};

}  // namespace cacheshim
