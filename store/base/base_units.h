// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "store/base/store.h"
#include "store/profiles/entry_map.h"
#include "store/threads/slices.h"

// Divides the base into units of eviction: entries; files of a known family that belong to no entry; and the objects at
// the top level of an unknown family's directory. Files in the store's root belong to no unit. Lock files belong to no
// unit either, except those in an entry directory.
namespace cacheshim {

struct BaseUnit {
  std::string unit;                // in the form of EntryRef::unit()
  std::vector<std::string> paths;  // the directory, or the files
  std::uint64_t bytes = 0;         // on disk
  std::uint64_t files = 0;         // names, including directories, as an inode quota counts them
  // The latest of the atimes and mtimes of the unit's files, and of the mtimes of its empty directories.
  std::time_t last_use = 0;
};

// Returns the unit named `unit` with its paths, but without its size and last use.
BaseUnit base_unit(const EntryMap& entries, const std::string& unit);

// Returns all units of the base. Skips unreadable objects. Calls stat(2) once per file.
std::vector<BaseUnit> list_base_units(const Store& store, const EntryMap& entries);

// Calls `accepts` with paths relative to the store: with the path of each unit's directory, or of each of its files.
// Returns the sorted names of the units for which `accepts` has returned true. Skips unreadable objects. Calls stat(2)
// for no file, unless the file system does not report the types of objects. Errors: ECANCELED once `is_wanted` has
// returned false (slices.h).
Result<std::vector<std::string>> find_base_units(
    const Store& store, const EntryMap& entries,
    const std::function<bool(std::string_view path)>& accepts, const IsWanted& is_wanted);

// Returns an unused name for an object in trash. The name begins with the current time, which trashed_since() reads.
std::string new_trash_name();

// Moves a unit to trash, path by path, and records the reason. Open descriptors remain readable, even on other
// machines, because sweep_trash() removes the files only later. A path that is already gone is not an error. If a move
// fails, some paths may already be in trash. If the record cannot be written, only logs the error.
Status discard_unit(const Store& store, const BaseUnit& unit, AuditRecord::Event event,
                    const std::string& reason);

// Returns the time at which the object with this name was moved to trash, in seconds since 1970; 0 if the name does not
// begin with a time.
std::time_t trashed_since(std::string_view name);

// Removes objects that have been in trash for at least `keep_seconds`, or whose names do not begin
// with a time. Stops when `is_wanted` returns false (slices.h).
void sweep_trash(const Store& store, std::time_t keep_seconds, const IsWanted& is_wanted = {});

}  // namespace cacheshim
