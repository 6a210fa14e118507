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

// Returns the living processes that may descend from the dead process `origin`. When a process dies,
// one of its ancestors (a subreaper, otherwise init) becomes the parent of its children. So for each
// descendant, go up through the parents that did not start before `origin`: the last of them is a
// child of one of `origin.ancestors`. Also returns unrelated processes that meet this condition, such
// as newer children of an init that starts all processes itself.
std::vector<pid_t> possible_descendants(const ProcessOrigin& origin);

// Whether the process has an open descriptor of `directory` or of an object below it, or has its
// working directory there. `directory` is the part of the path below the mount point, such as
// "/torch-extensions/py311/name": it matches at any mount point.
bool has_open_in(pid_t process, const std::string& directory);

}  // namespace cacheshim
