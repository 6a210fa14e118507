// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "learn/file_event.h"

namespace cacheshim::learn {

// How a file got its name: it was created with the name, was renamed or linked to the name, or was moved together with
// its directory.
enum class Arrival { kInPlace, kRenamed, kWithDirectory };

struct File {
  bool is_directory = false;
  Arrival arrival = Arrival::kInPlace;
  // The position of the event that gave the file its name. A rename of its directory does not change the position.
  std::size_t order = 0;
  std::string renamed_directory = {};  // for kWithDirectory: the new name of the directory
  bool is_exclusive = false;           // created with O_EXCL
};

// The changes that one run has made to the files of a cache.
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
  // Paths that a thread looked up while they were absent, unless the thread's next call created them.
  std::set<std::string> missed;
  // How often each file was opened for writing, or replaced, after it had been created.
  std::map<std::string, int> written_again;
  std::set<std::string> read;  // files opened for reading only
  std::set<pid_t> threads;
};

// Returns the history that the events describe. `before` are the files that existed before the
// events. Pure.
History replay(const std::vector<FileEvent>& events, const std::map<std::string, File>& before);

}  // namespace cacheshim::learn
