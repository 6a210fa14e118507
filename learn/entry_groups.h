// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "learn/file_history.h"

namespace cacheshim::learn {

// Entries of one kind: the common part of their paths, and their files in order of arrival.
struct EntryGroup {
  bool is_directory = false;
  std::map<std::string, std::vector<std::string>> members;  // paths of files, indexed by entry
};

struct EntryGroups {
  std::map<std::string, EntryGroup> by_pattern;
  std::vector<std::string> others;  // files that fit no entry
};

// Groups the files into entries. For each file, the first of these that applies is its entry: a
// directory that was renamed into place; the object at the first name on the path that looks like a
// key, which is a directory or the files with this common beginning; a directory beside others that
// contain a file of the same name. A directory that contains entries is not an entry itself.
// `left_out` are files that belong to no entry, such as locks. Pure.
EntryGroups group_entries(const std::map<std::string, File>& files,
                          const std::set<std::string>& left_out);

}  // namespace cacheshim::learn
