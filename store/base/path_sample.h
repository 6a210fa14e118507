// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "store/base/verifier.h"
#include "store/profiles/entry_map.h"

namespace cacheshim {

// What a bounded search for entries whose files name paths that lead nowhere (EntryRule::paths_in) has found.
struct PathSample {
  std::uint64_t entries = 0;  // that were read
  bool is_whole = true;       // all there are; else those that were read in time
  std::vector<DamagedFile> damaged;
};

// Reads entries in random order until `deadline`, so that every search of a large store reads others. What the base's file
// system does not answer is not waited for longer than one call takes. Leaves no trace of use where that can be had.
PathSample sample_recorded_paths(int base, const std::string& mount_path, const EntryMap& entries,
                                 std::chrono::steady_clock::time_point deadline);

}  // namespace cacheshim
