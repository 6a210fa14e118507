// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "store/base/verifier.h"
#include "store/profiles/entry_map.h"

namespace cacheshim {

// The result of a time-limited search for entries that jobs cannot use.
struct EntrySample {
  std::uint64_t entries = 0;  // the number of entry directories that were read
  bool is_whole = true;       // false: the deadline ended the search
  // Files that are useless at this mount path, because they name paths outside the cache's directory in the mount
  // (EntryRule::paths_in).
  std::vector<DamagedFile> damaged;
  // Entries of which some users cannot read the directory or a file. Also directories above entries, if some users
  // cannot enter them.
  std::vector<std::string> closed;
};

// Reads entries in random order until `deadline`, so that repeated searches of a large store cover different entries.
// May overrun the deadline by the time that it takes to read one entry, which can be long if the base's file system
// hangs. Does not change the files' access times if this process may open them with O_NOATIME.
EntrySample sample_entries(int base, const std::string& mount_path, const EntryMap& entries,
                           std::chrono::steady_clock::time_point deadline);

}  // namespace cacheshim
