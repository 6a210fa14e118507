// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "store/base/verifier.h"
#include "store/profiles/entry_map.h"

namespace cacheshim {

// The result of a bounded search for entries whose files name paths that are useless at this mount
// path (EntryRule::paths_in).
struct PathSample {
  std::uint64_t entries = 0;  // entries that were read
  bool is_whole = true;       // false: the deadline ended the search
  std::vector<DamagedFile> damaged;
};

// Reads entries in random order until `deadline`, so that repeated searches of a large store cover
// different entries. May return late, by the time that reading one entry takes, for example if the
// base's file system hangs. Leaves access times of files unchanged if the daemon may open files
// with O_NOATIME.
PathSample sample_recorded_paths(int base, const std::string& mount_path, const EntryMap& entries,
                                 std::chrono::steady_clock::time_point deadline);

}  // namespace cacheshim
