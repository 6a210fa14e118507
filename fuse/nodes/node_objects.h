// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/unique_fd.h"
#include "fuse/nodes/node_tree.h"

namespace cacheshim {

// Which object of the layer or the base a node stands for, as its data move by copy-up, publishing
// and renames. The node keeps its inode number, and open handles see another epoch.
//
// Thread-safe. Call the functions that change something with the Overlay::mutex() of the job held
// exclusively.
class NodeObjects {
 public:
  explicit NodeObjects(NodeTree& tree) : tree_(tree) {}

  // Whether its path still leads to the node's object, or to its copy in the layer.
  bool is_current(NodeIndex node, const struct stat& st, bool in_upper) const;

  // Makes the mount's root the root of this job's view: an object like those below it.
  void make_root_view(Job* job, const struct stat& st, bool in_upper);
  // The object's data have moved.
  void moved(NodeIndex node, const struct stat& st, bool in_upper);
  // As moved(), for a name that now leads to the base's file. If the node has further names, which
  // stay in the layer, it loses this one.
  void published(NodeIndex parent, std::string_view name, const struct stat& base);
  // The base's object of a node without a name was copied: `object` is the layer's own.
  void copied_nameless(NodeIndex node, const struct stat& st, UniqueFd object);
  // A rename has made the node's file a lock file of the base, `file`; or the job's own file, whose
  // locks remain those of the inode.
  void become_common(NodeIndex node, CommonFile file);
  void become_own(NodeIndex node, const struct stat& st);
  // Returns the inode whose locks the node's file uses, because the job has, or had, the file under
  // the name of a lock file too (NodeState::lock_by_inode()); nothing for all other nodes.
  std::optional<FileId> locked_inode(NodeIndex node) const;

  // Returns the inode number that `name` is shown with, if the directory's file system reports
  // `listed`.
  std::uint64_t shown_inode(NodeIndex parent, std::string_view name, dev_t device, ino_t listed);
  // Adds the file system whose numbers are shown unchanged, unless an object of another one came
  // first.
  void add_device(dev_t device);

 private:
  NodeTree& tree_;
};

}  // namespace cacheshim
