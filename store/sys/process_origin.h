// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cacheshim {

// What identifies a process, and those above it, at one moment: enough to tell later, when it is dead and
// its children belong to another, which of the living may descend from it.
struct ProcessOrigin {
  pid_t process = 0;             // 0: unknown, as one outside of our pid namespace
  std::uint64_t start_time = 0;  // clock ticks since boot
  std::vector<pid_t> ancestors;  // parent first

  // Of one that was before the machine began anew: nothing that lives descends from it.
  static ProcessOrigin of_the_dead();
};

// Nothing known of a process that is gone already.
ProcessOrigin origin_of(pid_t process);
bool is_alive(const ProcessOrigin& origin);

// The living processes that may descend from one that is dead. A child whose parent dies goes to an
// ancestor of it (a subreaper, else init), so that the topmost process above a descendant that began after
// `origin` is the child of one of `origin.ancestors`. Others of which that is true, children of an init
// that starts everything itself, are named too.
std::vector<pid_t> possible_descendants(const ProcessOrigin& origin);

// Whether the process has its working directory in `folder`, or it or a file in it open. `folder` is the
// end of its path, as "/torch-extensions/py311/name", wherever it is mounted.
bool has_open_in(pid_t process, const std::string& folder);

}  // namespace cacheshim
