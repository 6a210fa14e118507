// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <optional>
#include <string_view>

#include "common/unique_fd.h"
#include "fuse/nodes/node_tree.h"

namespace cacheshim {

// Records which object of the layer or the base a node stands for. When copy-up, publishing or a rename moves the
// node's data, the node stands for another object, but keeps its inode number. If open handles must open the data
// again, the node begins a new epoch, which the handles detect.
//
// Thread-safe. Hold the job's Overlay::mutex() exclusively when you call a function that makes changes.
class NodeObjects {
 public:
  explicit NodeObjects(NodeTree& tree) : tree_(tree) {}

  // Whether the object now at the node's path, with the attributes `st`, is the node's object or
  // its copy in the layer.
  bool is_current(NodeIndex node, const struct stat& st, bool in_upper) const;

  // Makes the mount's root the root of this job's view. The root's node then has the kind kObject, as the nodes below
  // it do.
  void make_root_view(Job* job, const struct stat& st, bool in_upper);
  // Call when the node's data have moved to another object, which has the attributes `st`.
  void moved(NodeIndex node, const struct stat& st, bool in_upper);
  // As moved(), for a name whose file has moved from the layer to the base. If the node has other names, which stay in
  // the layer, the node loses this name.
  void published(NodeIndex parent, std::string_view name, const struct stat& base);
  // Call when a change that users must not see has changed a directory's ctime from `before` to `after`. As long as the
  // directory has the ctime `after`, shown_ctime() returns the ctime that it returned for `before`.
  void keep_ctime(NodeIndex node, const timespec& before, const timespec& after);
  // Returns the ctime to show for a directory that has the ctime `actual`.
  timespec shown_ctime(NodeIndex node, const timespec& actual) const;
  // Call after the copy-up of a base object whose node has no name. `object` is the copy.
  void copied_nameless(NodeIndex node, const struct stat& st, UniqueFd object);
  // Call become_common() when a rename has made the node's file a common file (`file`), and become_own() when a rename
  // has made it the job's own again. After become_own(), the file's locks remain those of its inode (locked_inode()).
  void become_common(NodeIndex node, CommonFile file);
  void become_own(NodeIndex node, const struct stat& st);
  // If the file's locks are those of its inode (NodeState::locks_by_inode()), returns this inode; otherwise returns
  // nothing. The locks are those of the inode if the job has, or had, the file under the name of a lock file too.
  std::optional<FileId> locked_inode(NodeIndex node) const;

  // Returns the inode number to show for `name`. `listed`: the inode number that the directory's
  // file system, `device`, reports.
  std::uint64_t shown_inode(NodeIndex parent, std::string_view name, dev_t device, ino_t listed);
  // Adds a file system. The inode numbers of the first file system that is added, here or with an
  // object, are shown unchanged.
  void add_device(dev_t device);

 private:
  NodeTree& tree_;
};

}  // namespace cacheshim
