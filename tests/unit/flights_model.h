// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fuse/jobs/job.h"

// Single flight as processes drive it, checked after each step against a model:
//   1. While a builder of a name is alive, runs, and has not failed, no other process gets the name's lease, and no
//      waiting process is released without the name, unless its time is over or it is interrupted.
//   2. No process waits for a name that nobody builds, or for a builder that waits for it.
//   3. In the end every process has returned.
// The model has its own clock and processes, and nothing sleeps.
namespace cacheshim::flights_model {

inline constexpr std::size_t kProcesses = 6;

// Each does nothing where it is impossible at that moment, so that any sequence of actions is a valid one.
enum class ActionKind : std::uint8_t {
  kProceed,   // looks its name up, or goes on after a wait
  kMakeFile,  // a builder makes a temporary file
  kFinish,    // a builder completes the entry, which is published
  kReturn,    // a builder looks the same name up again after a pause, and has given the entry up
  kClear,     // a builder removes its temporary file and gives the entry up
  kLoop,      // a builder looks the name up again and again
  kRemove,    // a builder removes the entry's directory and gives the entry up
  kNest,      // a builder looks another name up in the middle of its build
  kKill,
  kStop,
  kContinue,
  kInterrupt,
  kPass,      // some milliseconds
  kPassLong,  // almost the timeout
  kTend,
};
struct Action {
  ActionKind kind;
  std::size_t process;
  unsigned number;  // of a name, or milliseconds
};

// Returns what went wrong, or "". The last process is a child of the first, and of its job.
std::string run(const std::vector<Job*>& jobs, Counters& counters,
                const std::vector<Action>& actions);

}  // namespace cacheshim::flights_model
