// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "learn/file_history.h"

namespace cacheshim::learn {

// A pattern and the observation that supports it.
struct Observed {
  std::string pattern;
  std::string seen;
};

// The facts about the entries that match one pattern.
struct EntryFacts {
  std::string path;
  // The endings of the files that form an entry; empty if entries are directories.
  std::vector<std::string> endings;
  std::string seen;
  bool is_renamed = true;  // whether renames put all files into place
  std::vector<Observed> complete;
  std::vector<Observed> complete_single;
  std::vector<Observed> paths_in;
  std::vector<Observed> flight;
  std::vector<std::string> notes;
};

struct CacheFacts {
  std::vector<EntryFacts> entries;
  std::vector<Observed> scratch;
  std::vector<Observed> locks;
  std::vector<Observed> batons;
  std::vector<std::string> notes;
  // Whether the command has created files or directories, even if it has removed them again.
  bool has_files = false;
  bool is_closed_to_others = false;  // no file's mode gives rights to group or others, as after mkstemp(3)
};

struct Evidence {
  std::vector<FileEvent> first;
  // The events of a second run of the command, which began with the files that the first run had left.
  std::optional<std::vector<FileEvent>> second;
  // The mode and text of a file that exists at the end. Only the text of a .json file is used, so the text of any other
  // file, and of a large file, may be left empty.
  struct Content {
    unsigned mode = 0;
    std::string text;
  };
  std::function<std::optional<Content>(const std::string& path)> read;
  std::string directory;  // the cache's directory, as the command sees it
};

// Derives the facts from the evidence. Pure, except that it calls `evidence.read`.
CacheFacts find_facts(const Evidence& evidence);

}  // namespace cacheshim::learn
