// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "store/base/store.h"
#include "store/profiles/entry_map.h"

// The base as what goes from it whole: entries; files of a known family that are of no entry; what lies
// in the folder of an unknown one. Files in the store's own root and lock files are none of it.
namespace cacheshim {

struct BaseUnit {
  std::string unit;                // as EntryRef::unit() spells it
  std::vector<std::string> paths;  // the folder, or the files
  std::uint64_t bytes = 0;         // on disk
  std::uint64_t files = 0;         // names, folders included: what an inode quota counts
  std::time_t last_use = 0;        // the latest time that a file of it was read or written
};

// One of them by its name, unmeasured.
BaseUnit base_unit(const EntryMap& entries, const std::string& unit);

// What cannot be read is left out. Takes a stat a file.
std::vector<BaseUnit> list_base_units(const Store& store, const EntryMap& entries);

// A name in trash that nothing else has, with the time in it.
std::string new_trash_name();

// Moves a unit to trash, path by path, and records why. Descriptors that are open stay readable: what
// is in trash is removed by sweep_trash(). A path that is gone already is no error.
Status discard_unit(const Store& store, const BaseUnit& unit, AuditRecord::Event event,
                    const std::string& reason);

// When that was brought to trash, by its name there, in seconds since 1970; 0 for a name that is none of ours.
std::time_t trashed_since(std::string_view name);

// Removes what has been in trash for longer than this.
void sweep_trash(const Store& store, std::time_t keep_seconds);

}  // namespace cacheshim
