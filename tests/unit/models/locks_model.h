// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/counters.h"

// Drives LockTable with simulated processes, and checks the results of each step against a model:
//  1. Two owners never hold conflicting locks, in any order of grants, unlocks, closes and deaths.
//  2. A request waits only for a conflicting lock or behind an earlier conflicting request. A
//     request that does not wait is refused only because of a conflicting lock.
//  3. Each request is answered exactly once. EINTR, ENOLCK and EDEADLK need a reason: an interrupt,
//     a closed table, a cycle.
//  4. At the end no request waits and no queue is left.
// The model has its own clock and processes. The locks themselves are real kernel locks.
namespace cacheshim::locks_model {

inline constexpr std::size_t kProcesses = 5;
inline constexpr std::size_t kFiles = 2;  // a job's own file, and a file of the base

// An action that is impossible does nothing, so that any sequence of actions is valid. A waiting
// process does nothing else.
enum class ActionKind : std::uint8_t {
  kFlock,    // flock(2)
  kRecord,   // fcntl(2) for a range of bytes
  kUnlock,   // releases locks of one of the two kinds
  kFind,     // F_GETLK
  kFlush,    // closes one descriptor of the process's handle
  kRelease,  // closes the process's handle and opens another one
  // Kills the process. For every second process, the kernel reports no close, because a child keeps the files open.
  kKill,
  kInterrupt,  // a waiting process gets a signal
  kRawLock,    // a process outside the mount locks the file of the base
  kRawUnlock,
  kCloseTable,  // closes the table, which then refuses waits, or reopens it
  kPass,        // some milliseconds
  kTend,
};
struct Action {
  ActionKind kind;
  std::size_t process;
  std::size_t file;
  unsigned number;  // the type, the bytes and whether the request waits; for kPass: milliseconds
};

// Runs the actions. Returns the first fault, or "" if there is none. `shared_file` is the path of an
// existing file.
std::string run(const std::string& shared_file, Counters& counters,
                const std::vector<Action>& actions);

}  // namespace cacheshim::locks_model
