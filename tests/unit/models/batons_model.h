// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Drives Batons with simulated processes, and checks the results of each step against a model:
//  1. A baton is reaped only once its creator is dead and no descendant of the creator uses the
//     baton's directory. A baton is not reaped if its job has removed or locked it, or if another
//     process has created it again.
//  2. After each check by Batons, no baton is left that may be reaped.
namespace cacheshim::batons_model {

inline constexpr std::size_t kProcesses = 5;
inline constexpr std::size_t kPaths = 4;  // two in each of two directories

// An action that is impossible does nothing, so that any sequence of actions is valid.
enum class ActionKind : std::uint8_t {
  kMake,    // creates a baton with O_EXCL (the daemon cannot see the pid of the first process)
  kRemove,  // removes a baton; any process may do so
  kMove,    // renames the entry's directory; Batons gets no event for this
  kLock,    // locks the baton's file; from then on, Batons must not reap the baton
  kKill,    // kills a process; a new one takes its place
  kEnter,   // a descendant of the process begins to use the directory
  kLeave,   // the descendants of all processes leave the directory
  kTend,    // runs the pending checks of Batons
};
struct Action {
  ActionKind kind;
  std::size_t process;
  std::size_t path;
};

// Runs the actions. Returns the first fault, or "" if there is none.
std::string run(const std::vector<Action>& actions);

}  // namespace cacheshim::batons_model
