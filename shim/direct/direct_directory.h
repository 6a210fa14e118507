// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "shim/direct/direct_view.h"

// A descriptor of the base's directory, so that the kernel walks no further than it must: 10 to 20
// % of a look. Only a process that asks the base often gets one, under a number so high that nobody
// comes upon it, and none where it may have few. It is closed on exec.
//
// It must not become another file's while it is in use. So the calls that close or replace
// descriptors, which programs use on numbers that they know nothing of, go round it
// (hooks_descriptor.cc): to the program its number is not open.
namespace cacheshim::direct {

extern std::atomic<int> held_directory;  // -1: none

// The descriptor, or -1: then the base is to be asked by its path. Async-signal-safe; errno stays.
int base_directory(const View& view);
// Whether base_directory()'s answer was the base's all the time.
inline bool is_held(int fd) { return held_directory.load(std::memory_order_relaxed) == fd; }
// Somebody needs the number, or the process is not to have it any more.
void drop_base_directory();
// The same if its number is one of these.
inline void make_room(unsigned first, unsigned last) {
  const int held = held_directory.load(std::memory_order_relaxed);
  if (held >= 0 && first <= static_cast<unsigned>(held) && static_cast<unsigned>(held) <= last)
      [[unlikely]] {
    drop_base_directory();
  }
}

}  // namespace cacheshim::direct
