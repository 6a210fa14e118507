// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "store/sys/mutex.h"

// What a layer has and what it hides, without asking the disk: its folders, the names that it has
// whited out and the folders that it has made opaque.
//
// Only this daemon changes a layer, so the folders on disk, with their markers, are the record and
// this is their index: a look at a name whose folder the layer has not goes straight to the lowers,
// and one walk over the index says whether those are hidden. A tree like the layer's own, so that
// what is renamed or removed takes along all that is below it in one step. Files are not in it.
// Thread-safe by a lock of its own, innermost and never held across a system call; what a change on disk
// and its record here are to be together is the Overlay's business. Paths are as in paths.h.
namespace cacheshim {

class LayerIndex {
 public:
  struct Place {
    bool in_layer = false;      // the layer has the folder that holds the name
    bool hides_lowers = false;  // the name or a folder above it is whited out, or one is opaque
  };
  Place place_of(std::string_view path) const;
  bool hides_lowers(std::string_view path) const { return place_of(path).hides_lowers; }

  bool has_folder(std::string_view path) const;
  // For all that add: the folder that holds the name must be there; "" always is.
  void add_folder(std::string_view path);

  void add_whiteout(std::string_view path);
  // By the name of the marker, as found on disk.
  void add_whiteout_marker(std::string_view folder, std::string_view marker);
  void remove_whiteout(std::string_view path);
  bool has_whiteout(std::string_view path) const;
  bool has_whiteouts_in(std::string_view folder) const;

  void add_opaque(std::string_view path);
  void remove_opaque(std::string_view path);
  bool is_opaque(std::string_view path) const;

  // A folder of the layer and all below it were removed, were renamed onto a name that was free, or
  // have changed places with another name, where a path that is no folder's stands for a file.
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
  struct Folder {
    Folder() = default;
    Folder(Folder&&) = default;
    Folder& operator=(Folder&&) = default;
    ~Folder();  // without recursion: a job may make trees of any depth
    bool opaque = false;
    std::unordered_map<std::string, std::unique_ptr<Folder>, Hash, std::equal_to<>> folders;
    std::unordered_set<std::string, Hash, std::equal_to<>> whiteouts;  // see whiteout_key()
  };

  const Folder* find(std::string_view path) const REQUIRES_SHARED(mutex_);
  Folder* find(std::string_view path) REQUIRES(mutex_);
  std::unique_ptr<Folder> take(std::string_view path) REQUIRES(mutex_);
  void put(std::string_view path, std::unique_ptr<Folder> folder) REQUIRES(mutex_);

  mutable SharedMutex mutex_;
  Folder root_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
