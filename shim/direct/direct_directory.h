// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "shim/direct/direct_view.h"

// A descriptor of the base's directory, which shortens the kernel's path walk: this saves 10 to 20
// % of a lookup. Only a process with many direct answers opens it, under a number so high that
// programs do not use it, and never if the process may open few descriptors. It is closed on exec.
//
// The number must not belong to another file while it is in use. Programs close or replace
// descriptors that they did not open, by number, so the hooks of these calls spare this number
// (hooks_descriptor.cc): the program sees it as not open.
namespace cacheshim::direct {

extern std::atomic<int> held_directory;  // -1 if there is none

// Returns the descriptor; if it returns -1, use the base's path. Async-signal-safe; leaves errno
// unchanged.
int base_directory(const View& view);
// Whether the result of base_directory() was the base's directory throughout.
inline bool is_held(int fd) { return held_directory.load(std::memory_order_relaxed) == fd; }
// Closes the descriptor. Call if the program needs the number, or if the process must not keep the
// directory open.
void drop_base_directory();
// Calls drop_base_directory() if the number is in this range.
inline void make_room(unsigned first, unsigned last) {
  const int held = held_directory.load(std::memory_order_relaxed);
  if (held >= 0 && first <= static_cast<unsigned>(held) && static_cast<unsigned>(held) <= last)
      [[unlikely]] {
    drop_base_directory();
  }
}

}  // namespace cacheshim::direct
