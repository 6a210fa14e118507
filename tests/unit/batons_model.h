// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Batons as processes drive them, checked after each step against a model:
//   1. A baton is reaped only once its maker is dead and no descendant of it works in the baton's
//      directory. One that its job has removed or locked, or that another process has made since, is
//      not reaped.
//   2. After each check by Batons, no baton is left that may be reaped.
namespace cacheshim::batons_model {

inline constexpr std::size_t kProcesses = 5;
inline constexpr std::size_t kPaths = 4;  // two in each of two directories

// Each does nothing where it is impossible, so that any sequence of actions is a valid one.
enum class ActionKind : std::uint8_t {
  kMake,    // by O_EXCL; the first process is one that the daemon cannot see
  kRemove,  // whoever has made it
  kMove,    // a rename of the entry's directory takes it away, which Batons does not learn
  kLock,    // a locked baton excludes by its lock, and stays
  kKill,    // another process takes its place
  kEnter,   // a descendant of the process works in the directory
  kLeave,   // all descendants leave the directory
  kTend,
};
struct Action {
  ActionKind kind;
  std::size_t process;
  std::size_t path;
};

// Returns what went wrong, or "".
std::string run(const std::vector<Action>& actions);

}  // namespace cacheshim::batons_model
