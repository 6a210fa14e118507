// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "store/base/base_units.h"
#include "store/threads/slices.h"

// Compares the base's files with the recorded digests.
namespace cacheshim {

struct DamagedFile {
  std::string path;
  std::string unit;
  std::string why;
};

struct VerifyReport {
  std::uint64_t files = 0;  // files that are as recorded
  std::uint64_t bytes = 0;
  // units without a record, such as files that were there before the directory became a store
  std::uint64_t unrecorded = 0;
  std::vector<DamagedFile> damaged;
  std::vector<std::string> repaired;  // units that were moved to trash
  // The paths of these units, and of those that could not be moved.
  std::vector<std::string> trashed_paths;
};

inline constexpr const char* kMissingFile = "missing";
// Returns what is wrong with a recorded file of the base; "" if the file agrees with its record. For a symlink, only
// checks that it exists. Errors: ECANCELED (slices.h), and errors that say nothing about the file, such as EMFILE.
Result<std::string> fault_of(int base, const AuditFile& file, const IsWanted& is_wanted = {});

// If a base file that holds paths (EntryRule::paths_in) names a path outside its cache's directory in the mount,
// returns a message. Returns "" for any other file, for a file that cannot be read, and if `mount_path` is empty. Also
// checks files without a record.
std::string path_fault_of(int base, const std::string& mount_path, const EntryMap& entries,
                          const std::string& path);

using VerifyProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Compares all recorded files with their digests, except files of class `shared`, because they change. For a symlink,
// only checks that it exists. Also reads all files that hold paths (EntryRule::paths_in): an entry that names paths
// outside its cache's directory in the mount is useless to every job and counts as damaged. With `repair`, moves
// damaged units to trash as a whole; the caller must then hold the lock of Store::try_lock_base(). Errors: those of
// reading the records and of fault_of(); in these cases, repairs nothing.
Result<VerifyReport> verify_base(const Store& store, const EntryMap& entries, bool repair,
                                 const VerifyProgress& progress, const IsWanted& is_wanted = {});

}  // namespace cacheshim
