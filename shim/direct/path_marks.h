// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/direct_filter.h"

namespace cacheshim::direct {

// Facts that the process has found out about paths. A mark is valid as long as the given state has
// not changed.
//
// The key of a path selects a slot, and a mark in the slot holds the whole key. Two paths are
// confused only if their 64-bit keys are equal: among a million paths the chance is 1 in 30 million
// (2^-25). The second path then counts as checked because the first one was: the process may open a
// name directly that only the mount should open, or get a descriptor of a directory of the base.
//
// A process that reads files must often fetch the slot from memory, which can take a tenth of the
// time of a system call. So the slot is prefetched before the call on the base.
class PathMarks {
 public:
  enum What : unsigned {
    kForBase,  // the rules of the view allow direct answers for the path
    kOpened,  // the process has opened it in this opened_state(), or has listed it in the complement of the state
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
  // Never 0, which means no mark. For one state, the marks of two keys differ as the keys do; the
  // last bit of the key is in the slot's number.
  static std::uint64_t mark(FilterKey path, std::uint64_t state) {
    return (path + state * 0x9e3779b97f4a7c15) | 1;
  }
  std::atomic<std::uint64_t> slots_[kSlots][2] = {};
};

}  // namespace cacheshim::direct
