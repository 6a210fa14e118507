// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace cacheshim {

// How the overlay treats a name, whatever the file contains.
enum class NameClass : unsigned char {
  kPrivate,  // belongs to its job until its entry is published
  kScratch,  // a temporary name, and all names below it
  kLock,     // locked by flock or fcntl; all jobs share one inode in the base
  kBaton,    // created with O_EXCL to lock, removed to unlock; an entry with a baton is not complete
  kShared,   // read, merged and rewritten under a lock; changes go to the base
  kFlight,   // as kPrivate; if the name is absent, one process builds it and the others wait
};

// How the rest of the code treats the names of a class.
struct NameClassRow {
  NameClass name_class;
  std::string_view name;             // as profiles write it
  std::string_view never_published;  // why these names are never published, for messages; "" if they may be
  bool covers_below = false;         // the names below a name of this class belong to it as well
  bool needs_evidence = false;       // has no effect in a profile with evidence "guess"
  bool is_common = false;            // the base's file is common to all jobs
  bool is_outside_units =
      false;  // belongs to no unit of eviction, except in an entry that is a directory
  // A baton: it excludes other processes by its existence. The daemon removes it when its creator dies. An entry that
  // contains a baton is not complete. If a process locks a baton, the daemon locks a file in leases/ instead.
  bool locks_by_existence = false;
  bool changes_in_place = false;     // the content changes in the base, so its digest is not verified
  bool is_awaited = false;           // single flight: one process builds the entry, the others wait
};

// All classes, in the order in which a profile's patterns are tried. The last row is for all other
// names.
inline constexpr std::array<NameClassRow, 6> kNameClasses = {{
    {.name_class = NameClass::kScratch,
     .name = "scratch",
     .never_published = "a temporary name is never published",
     .covers_below = true},
    {.name_class = NameClass::kLock,
     .name = "lock",
     .never_published = "a lock file is never published",
     .is_common = true,
     .is_outside_units = true},
    {.name_class = NameClass::kBaton,
     .name = "baton",
     .never_published = "a baton is never published",
     .locks_by_existence = true},
    {.name_class = NameClass::kShared,
     .name = "shared",
     .never_published = "",
     .needs_evidence = true,
     .is_common = true,
     .changes_in_place = true},
    {.name_class = NameClass::kFlight,
     .name = "flight",
     .never_published = "",
     .needs_evidence = true,
     .is_awaited = true},
    {.name_class = NameClass::kPrivate, .name = "private", .never_published = ""},
}};

constexpr const NameClassRow& row_of(NameClass name_class) {
  std::size_t at = 0;
  while (kNameClasses[at].name_class != name_class) ++at;
  return kNameClasses[at];
}

constexpr std::string_view to_string(NameClass name_class) { return row_of(name_class).name; }

}  // namespace cacheshim
