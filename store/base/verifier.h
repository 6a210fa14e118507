// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "store/base/base_units.h"

// Whether the base is what was published: its files against the digests on record.
namespace cacheshim {

struct DamagedFile {
  std::string path;
  std::string unit;
  std::string why;
};

struct VerifyReport {
  std::uint64_t files = 0;  // that are as recorded
  std::uint64_t bytes = 0;
  std::uint64_t unrecorded = 0;  // units that nobody has published here, as an older cache's
  std::vector<DamagedFile> damaged;
  std::vector<std::string> repaired;  // units that were moved to trash
  std::vector<std::string> gone;      // their paths
};

inline constexpr const char* kMissing = "missing";
// What is wrong with a file of the base, "" where it is as on record.
std::string fault_of(int base, const AuditFile& file);

// What is wrong with a file of the base that names paths (EntryRule::paths_in), whoever has put it there; "" for any other.
std::string path_fault_of(int base, const std::string& mount_path, const EntryMap& entries,
                          const std::string& path);

using VerifyProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Reads all recorded files, and those of all entries that name paths (EntryRule::paths_in): an entry that names others than
// the mount's is of no use to any job, and counts as damaged. Names of class `shared`, which change, are left out. With `repair` damaged
// units go to trash, whole. Errors: those of reading the records.
Result<VerifyReport> verify_base(const Store& store, const EntryMap& entries, bool repair,
                                 const VerifyProgress& progress);

}  // namespace cacheshim
