// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/nodes/node_tree.h"

namespace cacheshim {

// Finds nodes by their names, and changes these names.
//
// Hold the job's Overlay::mutex() exclusively when you call a function that makes changes, so that a
// path stays valid as long as another caller holds the mutex. For detach_stale() and replace_name_by_descriptor(), a
// shared lock suffices. Thread-safe.
class NodeNames {
 public:
  explicit NodeNames(NodeTree& tree) : tree_(tree) {}

  // Return 0 if the table has no node for the name or path.
  NodeIndex find(NodeIndex parent, std::string_view name) const;
  NodeIndex find_path(NodeIndex view_root, std::string_view path) const;

  // Adds a name to the node. Removes the name from the node that had it, if any.
  void add_link(NodeIndex node, NodeIndex parent, std::string_view name, const struct stat& st);
  // For remove(). If the removed name is the node's last one, the node keeps `object`.
  struct Removed {
    ChargedFd object;  // an O_PATH descriptor, or none
    bool in_upper = false;
    bool has_links = false;  // the file has other names
  };
  void remove(NodeIndex parent, std::string_view name, Removed removed);
  // Removes the node's first name, if any. If the node then has no name, it holds `object`, an O_PATH descriptor of its
  // file, taken from an open handle. Call in two cases: the first name no longer leads to the file, because another
  // process has removed or replaced the file outside this view; or the node has no name and holds no descriptor.
  void replace_name_by_descriptor(NodeIndex node, ChargedFd object);
  // Call before intern() for an object that was just created in the layer. If a node of another object has this name,
  // that node loses the name: another process has removed that object since the kernel's lookup.
  void detach_stale(NodeIndex parent, std::string_view name, const struct stat& made);
  void rename(NodeIndex parent, std::string_view name, NodeIndex new_parent,
              std::string_view new_name);
  void exchange(NodeIndex parent, std::string_view name, NodeIndex new_parent,
                std::string_view new_name);

  // Call when a job's layer is gone. Removes all names of the job's files, but keeps the names of its root, its
  // directories and common files. Returns the number of names before the call, including those of directories and
  // common files.
  std::size_t drop_all(const Job* job, NodeIndex view_root);
  // Returns the first name of every object of a job except its root. An object with n names occurs n
  // times, each time with its first name.
  struct NamedNode {
    NodeIndex node;
    NodeIndex parent;
    std::string name;
  };
  std::vector<NamedNode> all_of(const Job* job) const;
  // As all_of(), but returns at most `most` names, beginning with the nodes that were made last.
  std::vector<NamedNode> some_of(const Job* job, std::size_t most) const;
  // Returns up to `most` of the job's files that have only one name and for which `is_wanted(node)` is true.
  // `is_wanted` must not take any lock of the daemon except OpenFiles'.
  std::vector<NamedNode> some_files_of(const Job* job, std::size_t most,
                                       const std::function<bool(NodeIndex)>& is_wanted) const;

 private:
  NodeTree& tree_;
};

}  // namespace cacheshim
