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
  std::uint64_t conflicts = 0;  // the base had other content: nothing was added
  std::uint64_t incomplete = 0;  // left out: not complete, open for writing, or unsuitable
  std::uint64_t refused = 0;     // left out: the job may not publish
  // a unit was left out because a file of it is open for writing: try again when it is closed
  bool busy = false;
  // a unit was left out because the store's file system has no room (ENOSPC, EDQUOT): try again later
  bool is_full = false;
  // The layer has a new version of a file that completes the base's entry, but the job is not known
  // to have opened that entry.
  bool is_unread_rebuild = false;
  std::vector<std::string> paths;  // published files, relative to the store
  // files that the base already had, and that were dropped from the layer
  std::vector<std::string> copies;

  PublishReport& operator+=(const PublishReport& other);
};

// The planned publishing of one unit of a layer.
struct UnitPlan {
  std::string unit;
  std::uint64_t files = 0;  // files that would be added to the base
  std::uint64_t bytes = 0;
  std::string why_kept;  // why the unit would stay in the layer; "" if it would not
};

// The event that gave a path its current state.
enum class Arrival {
  kNamed,     // by a rename or an additional link
  kClosed,    // by the last close of a descriptor that could write to it
  kUnlocked,  // it was a baton, and its creator has removed it
  kBuilt,     // the lock under which it was built (EntryRule::built_under) has been released
};

}  // namespace cacheshim
