// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "learn/file_event.h"

namespace cacheshim::learn {

// How a name came to be there.
enum class Arrival { kInPlace, kRenamed, kWithDirectory };

struct File {
  bool is_directory = false;
  Arrival arrival = Arrival::kInPlace;
  std::size_t order = 0;               // of its arrival among all events
  std::string renamed_directory = {};  // of kWithDirectory: the new name of the directory
  bool is_exclusive = false;           // made by O_EXCL
};

// What a run has left, and what has gone.
struct History {
  std::map<std::string, File> files;  // that are there at the end, by path; directories too
  struct Gone {
    std::string path;
    std::string to;  // that it was renamed to, or ""
    bool is_directory;
    bool is_exclusive;
  };
  std::vector<Gone> gone;
  std::set<std::string> locked;  // paths that were locked
  std::set<std::string>
      missed;  // names that were looked up, were absent, and were not made by the next call
  std::map<std::string, int>
      written_again;           // files that had been closed or renamed there before, and how often
  std::set<std::string> read;  // files opened to be read
  std::set<pid_t> threads;
};

// Pure. `before`: what was there when the events began.
History replay(const std::vector<FileEvent>& events, const std::map<std::string, File>& before);

}  // namespace cacheshim::learn
