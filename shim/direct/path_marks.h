// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/direct_filter.h"

namespace cacheshim::direct {

// Records facts about paths, so that the process checks each fact only once. A mark is valid only for the state with
// which it was set.
//
// The key of a path selects a slot, and a mark in the slot combines the whole key with the state.
// For one state, two paths are confused only if their 64-bit keys are equal: among a million paths
// the chance is 1 in 30 million (2^-25). The second path then has the first path's marks, although
// it was not checked: the process may directly open a name that only the mount should open, or get
// a descriptor of a directory of the base.
//
// The slot is often not in the processor's caches. Fetching it from memory can take a tenth of the
// time of a system call, so call fetch() before the system call on the base.
class PathMarks {
 public:
  enum What : unsigned {
    kForBase,  // the rules of the view allow direct answers for the path
    // the process has opened the path (the state is opened_state()) or has listed it (the state is the complement); for
    // the key key_below(entry): the daemon has recorded that the entry is used
    kOpened,
  };
  void fetch(FilterKey path) const { __builtin_prefetch(slots_[path % kSlots]); }
  bool has(What what, FilterKey path, std::uint64_t state) const {
    return slots_[path % kSlots][what].load(std::memory_order_relaxed) == mark(path, state);
  }
  void set(What what, FilterKey path, std::uint64_t state) {
    slots_[path % kSlots][what].store(mark(path, state), std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kSlots = 16384;
  // Never returns 0, because 0 means no mark. "| 1" loses the last bit of the key, but all keys of a
  // slot have the same last bit. So for one state, two keys of a slot have different marks.
  static std::uint64_t mark(FilterKey path, std::uint64_t state) {
    return (path + state * 0x9e3779b97f4a7c15) | 1;
  }
  std::atomic<std::uint64_t> slots_[kSlots][2] = {};
};

}  // namespace cacheshim::direct
