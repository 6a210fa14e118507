// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>

#include "fuse/nodes/inode_numbers.h"
#include "fuse/nodes/node.h"
#include "store/overlay/origin_log.h"

namespace cacheshim {

// Records which object of a backing file system each node stands for, and finds the nodes of files with several names.
// Not thread-safe: part of the node table, guarded by its lock.
class ObjectIds {
 public:
  FileId id_of(const Node& node) const { return {numbers_.device(node.device), node.inode}; }
  bool is_at(const Node& node, const struct stat& st) const {
    return id_of(node) == FileId{st.st_dev, st.st_ino};
  }
  // Whether the object that a lookup has found at the node's name is the node's object, or its copy. Only this daemon
  // changes a layer, and when it removes a name there, it also removes the name from the node table. So an object of
  // the layer in place of the node's base object is a copy of that object. Only in the base can the name lead to a
  // different object. A directory counts as the same even if it was replaced.
  bool is_same(const Node& node, const struct stat& st, bool in_upper) const {
    if (node.is_dir != S_ISDIR(st.st_mode)) return false;
    return node.is_dir || is_at(node, st) || (in_upper && !node.in_upper);
  }

  // Call for a new node.
  void set_first(Node& node, const struct stat& st) {
    node.device = numbers_.find_or_add(st.st_dev);
    node.inode = st.st_ino;
  }
  // Makes the node stand for another object. find_linked() no longer returns the node for the previous object.
  void set(NodeIndex index, Node& node, const struct stat& st) {
    drop_linked(index, node);
    set_first(node, st);
  }
  // As set(), for a file that may have several names: if find_linked() returned the node for the previous object, it
  // returns the node for the new one.
  void move(NodeIndex index, Node& node, const struct stat& st) {
    const bool is_linked = find(index, node) != linked_.end();
    set(index, node, st);
    if (is_linked) add_linked(index, node);
  }

  // Makes find_linked() return this node for its file. The node has all names that its job gives the file.
  void add_linked(NodeIndex index, const Node& node) { linked_[{id_of(node), node.job}] = index; }
  void drop_linked(NodeIndex index, const Node& node) {
    if (const auto found = find(index, node); found != linked_.end()) linked_.erase(found);
  }
  // Returns the node that add_linked() has recorded for the file and the job; 0 if there is none.
  NodeIndex find_linked(const struct stat& st, const Job* job) const {
    const auto found = linked_.find({{st.st_dev, st.st_ino}, job});
    return found == linked_.end() ? 0 : found->second;
  }

  // Returns the mount's inode number for the object that has the node's data now. It may differ from
  // `ino`, which stays the same across copy-up.
  static std::uint64_t number_of(const Node& node) {
    return InodeNumbers::number(node.device, node.inode);
  }
  std::uint64_t number(dev_t device, ino_t inode) {
    return InodeNumbers::number(numbers_.find_or_add(device), inode);
  }
  // As number(), but returns nothing for an object of an unknown file system, instead of adding the
  // file system.
  std::optional<std::uint64_t> find_number(dev_t device, ino_t inode) const {
    const auto place = numbers_.find(device);
    if (!place) return std::nullopt;
    return InodeNumbers::number(*place, inode);
  }

 private:
  // Each job has a separate node for a file of the base.
  struct LinkedFile {
    FileId id;
    const Job* job;
    friend bool operator==(const LinkedFile&, const LinkedFile&) = default;
  };
  struct LinkedFileHash {
    std::size_t operator()(const LinkedFile& file) const {
      return FileIdHash{}(file.id) ^ std::hash<const Job*>{}(file.job);
    }
  };
  using Linked = std::unordered_map<LinkedFile, NodeIndex, LinkedFileHash>;

  Linked::iterator find(NodeIndex index, const Node& node) {
    const auto found = linked_.find({id_of(node), node.job});
    return found != linked_.end() && found->second == index ? found : linked_.end();
  }

  InodeNumbers numbers_;
  Linked linked_;
};

}  // namespace cacheshim
