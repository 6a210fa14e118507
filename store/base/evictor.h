// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "store/base/base_units.h"
#include "store/base/eviction_limits.h"

// Eviction: removes whole units from the base, the least recently used first, until the limits are
// met.
namespace cacheshim {

struct EvictedUnit {
  BaseUnit unit;
  std::string reason;     // the limit that was exceeded
  bool is_young = false;  // used within min_age, and evicted only because space ran out
};

struct EvictionReport {
  std::vector<EvictedUnit> evicted;
  std::uint64_t bytes = 0;  // the size of the evicted units
  std::uint64_t files = 0;
  std::uint64_t bytes_before = 0;  // the size of the whole base
  std::uint64_t files_before = 0;
  bool is_over = false;  // a limit is still exceeded, but all remaining units were used within min_age
};

// Returns the units that must be evicted to meet the limits. Evicts nothing.
EvictionReport plan_eviction(const Store& store, const EntryMap& entries,
                             const EvictionLimits& limits);

// Evicts the units of `report`. If a unit cannot be moved, logs the error and removes the unit from
// `report`. Returns the paths of all these units, including those that could not be moved, because
// some of their paths may be in trash. Requires: the lock of Store::try_lock_base().
std::vector<std::string> evict_units(const Store& store, EvictionReport& report);

// Chooses the units to evict if `free_bytes` of the file system's `size_bytes` are free; for
// plan_eviction() and tests.
EvictionReport choose_units(std::vector<BaseUnit> units, const EvictionLimits& limits,
                            std::time_t now, std::uint64_t free_bytes, std::uint64_t size_bytes);

}  // namespace cacheshim
