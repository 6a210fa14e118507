// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cacheshim {

// Identifies a process and its ancestors at one time. When the process is dead and its children
// have another parent, this is enough to find the living processes that may descend from it.
struct ProcessOrigin {
  pid_t process = 0;             // 0: unknown, such as one outside our PID namespace
  std::uint64_t start_time = 0;  // clock ticks since boot
  std::vector<pid_t> ancestors;  // parent first

  // Returns the origin of a process from before the last boot, from which no living process
  // descends.
  static ProcessOrigin of_the_dead();
};

// Returns an origin with `process` 0 for a process that has already exited.
ProcessOrigin origin_of(pid_t process);
bool is_alive(const ProcessOrigin& origin);

// Returns the living processes that may descend from a dead one. When a process dies, its children
// get one of its ancestors as their parent (a subreaper, otherwise init). So among the processes
// above a descendant, the topmost one that started after `origin` is a child of one of
// `origin.ancestors`. This also returns unrelated processes of this kind: the children of an init
// that starts everything itself.
std::vector<pid_t> possible_descendants(const ProcessOrigin& origin);

// Whether the process has `directory` or a file in it open, or has its working directory there.
// `directory` is the end of its path, such as "/torch-extensions/py311/name", wherever it is
// mounted.
bool has_open_in(pid_t process, const std::string& directory);

}  // namespace cacheshim
