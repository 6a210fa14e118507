// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "learn/file_history.h"

namespace cacheshim::learn {

// The entries whose paths match one pattern. The files of each entry are in the order in which they
// got their final names.
struct EntryGroup {
  bool is_directory = false;
  std::map<std::string, std::vector<std::string>> members;  // paths of files, indexed by entry
};

struct EntryGroups {
  std::map<std::string, EntryGroup> by_pattern;
  std::vector<std::string> others;  // files that fit no entry
};

// Groups the files into entries. The entry of a file is the first of these that exists:
//   1. the directory with which the file was renamed into place;
//   2. the first directory on the path that has a key (end_of_key()) in its name or, if only the
//      file's own name contains a key, all files whose paths are the same up to the end of the key;
//   3. the file's directory, if a directory beside it has a file of the same name.
// A directory that contains entries is not an entry itself. Ignores the files in `left_out`, such as
// locks. Pure.
EntryGroups group_entries(const std::map<std::string, File>& files,
                          const std::set<std::string>& left_out);

// Returns the last component of a path.
std::string name_of(const std::string& path);

}  // namespace cacheshim::learn
