// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>

// What of the base a layer hides: the paths it has whited out and the folders it has made opaque.
//
// The markers in the layer's folders are the record; this is their index, so that a look into the
// base costs a few hash probes (none while nothing is hidden) and no system call. Not thread-safe:
// part of an Overlay and under its lock. Paths are relative to the store, "" being its root.
namespace cacheshim {

class HiddenPaths {
 public:
  void add_whiteout(std::string_view path);
  // `encoded` is the path of the marker itself, as found on disk.
  void add_whiteout_marker(std::string encoded) { whiteouts_.insert(std::move(encoded)); }
  void remove_whiteout(std::string_view path);
  bool has_whiteout(std::string_view path) const;

  void add_opaque(std::string_view path) { opaque_.emplace(path); }
  void remove_opaque(std::string_view path);
  bool is_opaque(std::string_view path) const { return opaque_.contains(path); }

  // Whether the base's object at `path` is hidden: it or a folder above it is whited out, or a
  // folder above it is opaque.
  bool hides(std::string_view path) const;

  // A folder of the layer and all below it were renamed, or removed.
  void move_tree(std::string_view from, std::string_view to);
  void erase_tree(std::string_view path);
  void clear();

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  using Set = std::unordered_set<std::string, Hash, std::equal_to<>>;

  Set whiteouts_;  // paths of the markers
  Set opaque_;     // paths of the folders
};

// The folder that holds `path`, "" for one in the root; and its last component.
std::string_view parent_path(std::string_view path);
std::string_view base_name(std::string_view path);
// Either part may be empty, which leaves the other.
std::string join_path(std::string_view folder, std::string_view name);

}  // namespace cacheshim
