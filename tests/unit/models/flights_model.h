// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fuse/jobs/job.h"

// Drives single flight with simulated processes, and checks the results of each step against a model:
//  1. While the builder of a name is alive, is not stopped, and has not failed, no other process
//     gets the name's lease. During this time, a waiting process is released without the name only for
//     a reason that check_released() permits, for example because its timeout has passed.
//  2. No process waits for a name that has no builder, or for a builder that waits for the process.
//  3. At the end, every process has returned.
// The model has its own clock and processes, and nothing sleeps.
namespace cacheshim::flights_model {

inline constexpr std::size_t kProcesses = 6;

// An action that is impossible does nothing, so that any sequence of actions is valid.
enum class ActionKind : std::uint8_t {
  kProceed,   // a process looks up its name, or continues after a wait
  kMakeFile,  // a builder makes a temporary file
  kFinish,    // a builder completes the entry, which is published
  // A builder looks up the same name again after a pause, which shows that it has given up.
  kReturn,
  kClear,   // a builder removes its temporary file, which shows that it has given up
  kLoop,    // a builder looks up the name repeatedly
  kRemove,  // a builder removes the entry's directory, which shows that it has given up
  kNest,    // a builder looks up another name during its build
  kKill,
  kStop,
  kContinue,
  kInterrupt,
  kPass,      // some milliseconds
  kPassLong,  // almost the timeout
  kTend,      // runs the pending checks of Flights
};
struct Action {
  ActionKind kind;
  std::size_t process;
  unsigned number;  // depending on the kind, the number of a name, or milliseconds
};

// Runs the actions. Returns the first fault, or "" if there is none. The last process is a child of
// the first, and belongs to the same job.
std::string run(const std::vector<Job*>& jobs, Counters& counters,
                const std::vector<Action>& actions);

}  // namespace cacheshim::flights_model
