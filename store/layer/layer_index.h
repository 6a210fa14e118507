// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "store/sys/mutex.h"

// An index in memory of what a layer has and hides: its directories, the names that it has whited
// out and the directories that it has made opaque.
//
// Only this daemon changes a layer, so the directories and markers on disk are the record, and this
// is their index. If the layer does not have the directory of a name, a lookup goes directly to the
// lowers, and one walk over the index tells whether they are hidden. The index is a tree like the
// layer's own, so that a rename or removal handles everything below in one step. It does not
// contain files. Thread-safe: its lock is the innermost one and is not held across a system call.
// The Overlay makes a change on disk and its record here atomic. Paths are as in paths.h.
namespace cacheshim {

class LayerIndex {
 public:
  struct Place {
    bool in_layer = false;      // the layer has the directory of the name
    bool hides_lowers = false;  // the name or a parent directory is whited out, or one is opaque
  };
  Place place_of(std::string_view path) const;

  bool has_directory(std::string_view path) const;
  // The functions that add a name require that the index contains its parent directory. It always
  // contains "".
  void add_directory(std::string_view path);

  void add_whiteout(std::string_view path);
  // Adds a whiteout by the name of its marker on disk.
  void add_whiteout_marker(std::string_view directory, std::string_view marker);
  void remove_whiteout(std::string_view path);
  bool has_whiteout(std::string_view path) const;
  bool has_whiteouts_in(std::string_view directory) const;

  void add_opaque(std::string_view path);
  void remove_opaque(std::string_view path);
  bool is_opaque(std::string_view path) const;

  // Call after a directory of the layer was removed, was renamed to an unused name, or was
  // exchanged with another name, with everything below it. A path that is not in the index is taken
  // for a file.
  void erase_tree(std::string_view path);
  void move_tree(std::string_view from, std::string_view to);
  void exchange_trees(std::string_view one, std::string_view other);
  void clear();

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  struct Directory {
    Directory() = default;
    Directory(Directory&&) = default;
    Directory& operator=(Directory&&) = default;
    ~Directory();  // without recursion: a job may create trees of any depth
    bool opaque = false;
    std::unordered_map<std::string, std::unique_ptr<Directory>, Hash, std::equal_to<>> directories;
    std::unordered_set<std::string, Hash, std::equal_to<>> whiteouts;  // see whiteout_key()
  };

  const Directory* find(std::string_view path) const REQUIRES_SHARED(mutex_);
  Directory* find(std::string_view path) REQUIRES(mutex_);
  std::unique_ptr<Directory> take(std::string_view path) REQUIRES(mutex_);
  void put(std::string_view path, std::unique_ptr<Directory> directory) REQUIRES(mutex_);

  mutable SharedMutex mutex_;
  Directory root_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
