// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cacheshim {

// Identifies a process and the ancestors that it had at one time. When the process has died and its
// children have another parent, its ProcessOrigin is enough to find the living processes that may
// descend from it.
struct ProcessOrigin {
  pid_t process = 0;             // 0: unknown, as for a process outside the daemon's PID namespace
  std::uint64_t start_time = 0;  // clock ticks since boot
  std::vector<pid_t> ancestors;  // parent first

  // Returns the origin of a process from before the last boot, from which no living process
  // descends.
  static ProcessOrigin of_the_dead();
};

// Returns an origin with `process` 0 for a process that has already exited.
ProcessOrigin origin_of(pid_t process);
bool is_alive(const ProcessOrigin& origin);

// Returns the living processes that may descend from the dead process `origin`. When a process dies, its children get
// one of its ancestors (a subreaper, otherwise init) as their parent. So this function follows the parents of each
// process up to the last one that did not start before `origin`; if that one is a child of `origin.process` or of one
// of `origin.ancestors`, the process may be a descendant. Unrelated processes can meet this condition too, such as
// newer children of an init that starts all processes itself.
std::vector<pid_t> possible_descendants(const ProcessOrigin& origin);

// Whether the process has an open descriptor of `directory` or of an object below it, or has its
// working directory there. `directory` is the part of the path below the mount point, such as
// "/torch-extensions/py311/name": it matches at any mount point.
bool has_open_in(pid_t process, const std::string& directory);

}  // namespace cacheshim
