// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "fuse/nodes/closer.h"
#include "fuse/nodes/node_info.h"
#include "fuse/nodes/node_names.h"
#include "fuse/nodes/node_objects.h"
#include "fuse/nodes/node_state.h"
#include "fuse/nodes/node_tree.h"
#include "store/overlay/overlay_types.h"

namespace cacheshim {

// The nodes of a mount: one for each object that the kernel has looked up in a job's view.
//
// A node has a name (parent and component) and finds its object by walking from the job's roots, so it holds no
// descriptor and is not affected by copy-up and publishing. All hard links of a file share one node, which has a first
// name and other names. A node whose last name is removed keeps an O_PATH descriptor instead. Any process may remove
// and recreate a common file at any time, while other processes open it. So the nodes of common files hold a descriptor
// from the lookup on, and an open gets the file that the lookup found (HeldObjects). Once the descriptor is closed, the
// node finds the file by its name again.
//
// This class makes and frees nodes. names() finds nodes by name and changes their names, objects()
// changes the objects that nodes stand for, and state() returns the rest of a node's state.
//
// Thread-safe: all nodes have one reader-writer lock (NodeTree), which is never held across a system call that may
// block. Adding and removing nodes and names takes the lock exclusively. Finding a node, counting another lookup of a
// known node, and forgetting some, but not all, of its lookups take it shared.
class NodeTable {
 public:
  NodeTable() : names_(tree_), objects_(tree_) {}

  NodeNames& names() { return names_; }
  const NodeNames& names() const { return names_; }
  NodeObjects& objects() { return objects_; }

  // Returns true if the node is in use, so that a request can name it. All other methods that take a node, except
  // forget() and is_removed(), require a known node.
  bool is_known(NodeIndex node) const;
  NodeInfo info(NodeIndex node) const;
  // Whether the node is in use, and stands for an object of the job's layer that has lost its last name.
  bool is_removed(NodeIndex node, const Job& job) const;
  // Charges `account` for the job's nodes (Limit::kNodes). Idempotent, and fast if the account is the same as before.
  void charge_to(const Job& job, UserAccount& account);
  // Returns the node's state. Takes no lock.
  NodeState& state(NodeIndex node) const { return tree_.at(node).state; }
  // Returns the path from the view's root, "" for the root itself. Errors: ESTALE if the node or a
  // directory above it has no name, or if the node is in no view.
  Result<std::string> path(NodeIndex node) const;
  // Returns the last component of the node's first name. The node may be one of the mount's own directories.
  std::string name(NodeIndex node) const;

  // Returns the node of this parent and name in the mount's own directories; makes the node if
  // there is none. Counts one lookup.
  NodeIndex intern_own(NodeIndex parent, std::string_view name, NodeKind kind, Job* job = nullptr);
  // Returns the node of an object that a lookup has found. Counts one lookup. If the name now leads
  // to another object, because a process has replaced the file in the base, the name gets a new
  // node.
  NodeIndex intern(NodeIndex parent, std::string_view name, Job* job, const Found& found);
  // As intern(), for a common file.
  NodeIndex intern_common(NodeIndex parent, std::string_view name, Job* job, CommonFile file);
  // Makes a node for a file that never had a name. Counts one lookup. `object`: an O_PATH
  // descriptor of the file; empty for a node that stands for an object that does not exist yet.
  NodeIndex intern_nameless(Job* job, const struct stat& st, ChargedFd object);
  // Counts one more lookup of an existing node.
  void count_lookup(NodeIndex node);
  // Subtracts `count` lookups, which the kernel has dropped, and frees the node if it has no
  // lookups and no children left. Does nothing for an unknown node.
  void forget(NodeIndex node, std::uint64_t count);

  // Whether the kernel has looked up the root of a job's view. If not, the kernel has cached no name of the view.
  bool is_looked_up(NodeIndex view_root) const;
  // Makes the table forget the job: no later call may name the job. Returns false, and changes nothing, if the kernel
  // knows a node of the job.
  bool forget_job(const Job& job, NodeIndex view_root);

  std::uint32_t size() const { return tree_.size(); }

 private:
  bool is_unchanged(const Node& node, const Found& found) const REQUIRES_SHARED(tree_.mutex);
  NodeIndex find_linked(const NodeName& name, Job* job, const struct stat& st)
      REQUIRES(tree_.mutex);
  NodeIndex intern_locked(const NodeName& name, Job* job, const Found& found, CommonKind kind)
      REQUIRES(tree_.mutex);

  NodeTree tree_;
  NodeNames names_;
  NodeObjects objects_;
  Closer closer_;
};

}  // namespace cacheshim
