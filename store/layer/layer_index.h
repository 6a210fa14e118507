// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "store/threads/mutex.h"

// An in-memory index of a layer: its directories, its whiteouts, and which of its directories are opaque.
//
// Only this daemon changes the layer, so the index always agrees with the directories and markers
// on disk. If the layer does not have the directory that contains a name, a lookup goes directly to
// the lowers. A walk down the index shows whether the layer hides the name in the lowers. The index is a
// tree like the layer's own, so that a rename or removal of a directory is one step, whatever the
// directory contains. The index does not contain files. Thread-safe: its lock is the innermost one
// and is not held across a system call. The caller holds Overlay::mutex() while it makes a change
// on disk and in the index. Paths are as in paths.h.
namespace cacheshim {

class LayerIndex {
 public:
  struct Place {
    bool in_layer = false;      // the layer has the directory that contains the name
    // The name or a directory above it is whited out, or a directory above it is opaque.
    bool hides_lowers = false;
    // The longest leading part of the path that is whited out or is an opaque directory. Points into
    // the path that was passed to place_of().
    std::string_view hider = {};
    bool is_whiteout = false;
  };
  Place place_of(std::string_view path) const;

  bool has_directory(std::string_view path) const;
  // Requires, for all add functions: the index contains the parent of the added directory or whiteout, and the
  // directory that add_opaque() marks. The root, "", is always in the index.
  void add_directory(std::string_view path);

  void add_whiteout(std::string_view path);
  void remove_whiteout(std::string_view path);
  bool has_whiteout(std::string_view path) const;
  bool has_whiteouts_in(std::string_view directory) const;

  void add_opaque(std::string_view path);
  void remove_opaque(std::string_view path);
  bool is_opaque(std::string_view path) const;

  // Call after a directory of the layer, with everything below it, was removed (erase_tree()), was renamed to an unused
  // name (move_tree()), or was exchanged with another object (exchange_trees()). If a path is not in the index, these
  // functions assume that it is the path of a file.
  void erase_tree(std::string_view path);
  void move_tree(std::string_view from, std::string_view to);
  void exchange_trees(std::string_view one, std::string_view other);
  void clear();

  // Returns the length in bytes of the longest path of a directory below `path`, relative to it; 0
  // if the layer has none. Visits all directories below `path`.
  std::size_t longest_below(std::string_view path) const;

  // Adds a layer's contents to an index. If directories are added in the order of walk_tree(), adding one takes the
  // same time at any depth. Nothing else may change the index while a Loader is in use.
  class Loader;

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
    std::unordered_set<std::string, Hash, std::equal_to<>> whiteouts;  // the keys of the whiteouts (WhiteoutKey)
  };

  const Directory* find(std::string_view path) const REQUIRES_SHARED(mutex_);
  Directory* find(std::string_view path) REQUIRES(mutex_);
  std::unique_ptr<Directory> take(std::string_view path) REQUIRES(mutex_);
  void put(std::string_view path, std::unique_ptr<Directory> directory) REQUIRES(mutex_);

  mutable SharedMutex mutex_;
  Directory root_ GUARDED_BY(mutex_);
};

class LayerIndex::Loader {
 public:
  explicit Loader(LayerIndex& index) : index_(index) {}
  void add_directory(std::string_view path);
  void add_opaque(std::string_view path);
  // Adds a whiteout by the name of its marker on disk.
  void add_whiteout_marker(std::string_view directory, std::string_view marker);

 private:
  Directory& find(std::string_view path) REQUIRES(index_.mutex_);

  LayerIndex& index_;
  std::string last_;  // the path in the previous call of find()
  // The directories on the way to `last_`, without the root, and the lengths of their paths.
  std::vector<std::pair<std::size_t, Directory*>> trail_;
};

}  // namespace cacheshim
