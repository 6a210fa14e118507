// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "learn/file_event.h"

namespace cacheshim::learn {

// The way in which a name appeared.
enum class Arrival { kInPlace, kRenamed, kWithDirectory };

struct File {
  bool is_directory = false;
  Arrival arrival = Arrival::kInPlace;
  std::size_t order = 0;               // its position among all events
  std::string renamed_directory = {};  // for kWithDirectory: the new name of the directory
  bool is_exclusive = false;           // created with O_EXCL
};

// The files that exist after a run, and those that it has removed.
struct History {
  std::map<std::string, File> files;  // files and directories that exist at the end, by path
  struct Gone {
    std::string path;
    std::string to;  // the new name if it was renamed, otherwise ""
    bool is_directory;
    bool is_exclusive;
  };
  std::vector<Gone> gone;
  std::set<std::string> locked;  // paths that were locked
  std::set<std::string>
      missed;  // names that were looked up, were absent, and were not created by the next call
  std::map<std::string, int>
      // files that were written again after they had been closed or renamed, and how often
      written_again;
  std::set<std::string> read;  // files opened for reading
  std::set<pid_t> threads;
};

// Returns the history that the events describe. `before` are the files that existed before the
// events. Pure.
History replay(const std::vector<FileEvent>& events, const std::map<std::string, File>& before);

}  // namespace cacheshim::learn
