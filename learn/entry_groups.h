// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "learn/file_history.h"

namespace cacheshim::learn {

// Entries of one kind: what their paths have in common, and their files in the order of their arrival.
struct EntryGroup {
  bool is_directory = false;
  std::map<std::string, std::vector<std::string>> members;  // paths of files, by entry
};

struct EntryGroups {
  std::map<std::string, EntryGroup> by_pattern;
  std::vector<std::string> others;  // files that fit no entry
};

// Pure. An entry is a directory that was renamed into place; else what the first name on the path that looks like a
// key leads to, which is a directory or files that share the name up to there; else a directory beside others that
// have a file of the same name in them. A directory around entries is not an entry itself. `left_out` are files of no
// entry: locks and the like.
EntryGroups group_entries(const std::map<std::string, File>& files,
                          const std::set<std::string>& left_out);

}  // namespace cacheshim::learn
