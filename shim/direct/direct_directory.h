// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "shim/direct/direct_view.h"

// A descriptor of the base's directory, which shortens the kernel's path walk: this saves 10 to 20
// % of a lookup. Only a process with many direct answers opens it, under a number so high that
// programs do not use it, and never if the process may open few descriptors. It is closed on exec.
//
// The number must not become another file's while it is in use. Programs close or replace
// descriptors by numbers that they know nothing of, so the hooks of these calls spare this number
// (hooks_descriptor.cc): to the program it is not open.
namespace cacheshim::direct {

extern std::atomic<int> held_directory;  // -1: none

// Returns the descriptor, or -1: then use the base's path. Async-signal-safe; leaves errno alone.
int base_directory(const View& view);
// Whether the result of base_directory() was the base's directory throughout.
inline bool is_held(int fd) { return held_directory.load(std::memory_order_relaxed) == fd; }
// Closes the descriptor: the program needs the number, or the process must not keep the directory.
void drop_base_directory();
// Does the same if the number is in this range.
inline void make_room(unsigned first, unsigned last) {
  const int held = held_directory.load(std::memory_order_relaxed);
  if (held >= 0 && first <= static_cast<unsigned>(held) && static_cast<unsigned>(held) <= last)
      [[unlikely]] {
    drop_base_directory();
  }
}

}  // namespace cacheshim::direct
