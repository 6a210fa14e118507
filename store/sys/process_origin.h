// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cacheshim {

// Identifies a process, and records the ancestors that it had when origin_of() was called. When the
// process has died and its children have another parent, this is enough to find the living
// processes that may descend from it.
struct ProcessOrigin {
  pid_t process = 0;             // 0: unknown, as for a process outside the daemon's PID namespace
  std::uint64_t start_time = 0;  // clock ticks since boot
  std::vector<pid_t> ancestors;  // parent first

  // Returns an origin that stands for any process from before the last boot. No living process
  // descends from it.
  static ProcessOrigin from_before_boot();
};

// Returns an origin with `process` 0 for a process that has already exited.
ProcessOrigin origin_of(pid_t process);
bool is_alive(const ProcessOrigin& origin);

// Returns the living processes that may descend from the dead process `origin`. When a process dies, its children get
// one of its ancestors (a subreaper, otherwise init) as their parent. So for each process, this function follows the
// chain of parents up to the last process that did not start before `origin`. If the parent of this last process is
// `origin.process` or one of `origin.ancestors`, the whole chain may descend from `origin`. Unrelated processes can
// meet this condition too, such as newer children of an init that starts all processes itself.
std::vector<pid_t> possible_descendants(const ProcessOrigin& origin);

// Whether the process has an open descriptor of `directory` or of an object below it, or has its
// working directory there. `directory` is the part of the path below the mount point, such as
// "/torch-extensions/py311/name": it matches at any mount point.
bool has_open_in(pid_t process, const std::string& directory);

}  // namespace cacheshim
