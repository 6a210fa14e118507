// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// The argument and result types of Publisher.
namespace cacheshim {

struct PublishReport {
  std::uint64_t entries = 0;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t conflicts = 0;  // units for which the base had other content: nothing was added
  std::uint64_t incomplete = 0;  // units left out because they are not complete, or because publishing failed
  std::uint64_t refused = 0;     // units left out because the job may not publish
  // Whether a unit was left out because one of its files is open for writing: try again when the file is closed.
  bool busy = false;
  // Whether a unit was left out because the store's file system has no room (ENOSPC, EDQUOT): try again later.
  bool is_full = false;
  // Whether the layer has a new version of a file that completes the base's entry, although the daemon
  // has not seen the job open that entry.
  bool is_unread_rebuild = false;
  std::vector<std::string> paths;  // published files, relative to the store
  // Files that the base already had, and that were dropped from the layer.
  std::vector<std::string> copies;

  PublishReport& operator+=(const PublishReport& other);
};

// The planned publishing of one unit of a layer.
struct UnitPlan {
  std::string unit;
  std::uint64_t files = 0;  // files that would be added to the base
  std::uint64_t bytes = 0;
  std::string why_kept;  // why the unit would stay in the layer; "" if it would be published
};

// The event that gave a path its current state.
enum class Arrival {
  kNamed,     // by a rename, by an additional link, or by the creation of a symlink
  kClosed,    // by the last close of a descriptor that could write to it
  kUnlocked,  // by a removal: if the file was a baton, its removal has released the lock
  kBuilt,     // the lock under which it was built (EntryRule::built_under) has been released
};

}  // namespace cacheshim
