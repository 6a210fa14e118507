// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "store/base/base_units.h"
#include "store/base/eviction_limits.h"

// Eviction: what was used least recently goes from the base, whole, until the limits hold.
namespace cacheshim {

struct EvictedUnit {
  BaseUnit unit;
  std::string reason;     // the name of the limit
  bool is_young = false;  // used within min_age: space had run out
};

struct EvictionReport {
  std::vector<EvictedUnit> evicted;
  std::uint64_t bytes = 0;  // of these
  std::uint64_t files = 0;
  std::uint64_t bytes_before = 0;  // of all
  std::uint64_t files_before = 0;
  bool is_over = false;  // a limit does not hold for all that: the rest was used within min_age
};

// What the limits ask to evict now: nothing is done.
EvictionReport plan_eviction(const Store& store, const EntryMap& entries,
                             const EvictionLimits& limits);

// Does it. A unit that cannot be moved is left and logged. Returns the paths that are gone.
std::vector<std::string> carry_out(const Store& store, EvictionReport& report);

// `units` as they would be evicted where `free` bytes of `size` are free; for plan_eviction() and tests.
EvictionReport choose_units(std::vector<BaseUnit> units, const EvictionLimits& limits,
                            std::time_t now, std::uint64_t free_bytes, std::uint64_t size_bytes);

}  // namespace cacheshim
