// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "shim/direct/direct_view.h"

// A descriptor of the base's directory. It shortens the kernel's path walk, which saves 10 to 20 %
// of the time of a lookup. A process opens the descriptor after 64 direct calls. The descriptor's
// number is 500 or more, because programs rarely use numbers that high. If RLIMIT_NOFILE does not
// allow such a number, the process does not open the descriptor. The descriptor is closed on exec.
//
// The number must not denote another file while this library uses it. But programs close or replace
// descriptors by number, even those that they did not open. So the hooks of calls that close or
// replace descriptors treat this number as if it were not open. If the program itself takes the
// number (dup2), the hook first closes the descriptor (hooks_descriptor.cc).
namespace cacheshim::direct {

extern std::atomic<int> held_directory;  // the descriptor; -1 if it is not open

// Returns the descriptor; if it returns -1, use the base's path. Async-signal-safe; leaves errno
// unchanged.
int base_directory(const View& view);
// Call after a system call that used `fd`, a result of base_directory(). Returns true if `fd` was the
// base's directory throughout that system call.
inline bool is_held(int fd) { return held_directory.load(std::memory_order_relaxed) == fd; }
// Closes the descriptor. Call if the program itself takes the descriptor's number, or if the process
// must not keep the directory open.
void drop_base_directory();
// Calls drop_base_directory() if the descriptor's number is between `first` and `last`.
inline void make_room(unsigned first, unsigned last) {
  const int held = held_directory.load(std::memory_order_relaxed);
  if (held >= 0 && first <= static_cast<unsigned>(held) && static_cast<unsigned>(held) <= last)
      [[unlikely]] {
    drop_base_directory();
  }
}

}  // namespace cacheshim::direct
