// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/unique_fd.h"
#include "fuse/limits/user_limits.h"
#include "fuse/nodes/arena.h"
#include "fuse/nodes/held_objects.h"
#include "fuse/nodes/name_index.h"
#include "fuse/nodes/node.h"
#include "fuse/nodes/object_ids.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// The nodes with their names, and the reader-writer lock over them. Only NodeTable, NodeNames and
// NodeObjects use this class. Takes about 140 bytes per file, including its name.
//
// Call with `mutex` held, and never hold it across a system call.
class NodeTree {
 public:
  NodeTree();  // makes the root, which is never freed

  // Make a node, with or without a name. The new node has no lookups.
  NodeIndex make(const NodeName& name, NodeKind kind, Job* job) REQUIRES(mutex);
  NodeIndex make_nameless(Job* job) REQUIRES(mutex);
  // Needs no lock: a node stays in place until it is freed.
  Node& at(NodeIndex node) const { return nodes_.get(node); }
  // Whether a node has this index.
  bool is_in_use(NodeIndex node) const REQUIRES_SHARED(mutex) {
    const Node* const found = nodes_.find(node);
    return found != nullptr && found->name != nullptr;
  }
  std::uint32_t size() const { return nodes_.in_use(); }
  // Charges `account` for the nodes that the job has now, and for later ones.
  void charge_to(const Job* job, UserAccount& account) REQUIRES(mutex);
  bool is_charged_to(const Job* job, const UserAccount& account) const REQUIRES_SHARED(mutex);
  // Forgets the job if `view_root` is its only node and the job table holds the only lookup of this node. Otherwise
  // returns false and changes nothing.
  bool forget_job(const Job* job, NodeIndex view_root) REQUIRES(mutex);
  // Frees the node if it has no lookups and no children. Then does the same for its parent, and so on
  // upwards.
  void free_if_unused(NodeIndex node) REQUIRES(mutex);
  // Whether at least 65,536 nodes have been freed since the last call that returned true.
  bool take_many_freed() REQUIRES(mutex);

  // Returns 0 if no node has the name.
  NodeIndex find(const NodeName& name) const REQUIRES_SHARED(mutex);
  bool is_view_root(NodeIndex index) const REQUIRES_SHARED(mutex) {
    const Node& node = at(index);
    if (node.kind != NodeKind::kObject || !node.named) return false;
    return index == kRootNode || at(node.parent).kind != NodeKind::kObject;
  }
  // Adds a name to a node, which may already have others.
  void attach(NodeIndex node, const NodeName& name) REQUIRES(mutex);
  // Removes a name of the node. If it was the last one, the node keeps the descriptor `object`,
  // unless that is empty.
  void detach(NodeIndex node, const NodeName& name, ChargedFd object = {}) REQUIRES(mutex);
  void move_name(const NodeName& from, const NodeName& to) REQUIRES(mutex);
  // Calls `function(index, node)` for every name of a job's objects, except its roots. Begins with the nodes that were
  // made last.
  template <class Function>
  void for_each_of(const Job* job, Function&& function) const REQUIRES_SHARED(mutex) {
    for (NodeIndex index = first_of(job); index != 0; index = at(index).next) {
      const Node& node = at(index);
      if (node.kind != NodeKind::kObject || !node.named) continue;
      if (at(node.parent).kind != NodeKind::kObject) continue;
      for (std::size_t name = node.name_count(); name > 0; --name) function(index, node);
    }
  }
  // Returns the job's node that was made last; 0 if the job has none. Node::next leads to the job's other nodes, of all
  // kinds.
  NodeIndex first_of(const Job* job) const REQUIRES_SHARED(mutex) {
    const auto found = jobs_.find(job);
    return found == jobs_.end() ? 0 : found->second.first;
  }

  mutable SharedMutex mutex{LockRank::kNodeTable};
  ObjectIds ids GUARDED_BY(mutex);
  HeldObjects held GUARDED_BY(mutex);

 private:
  bool has_name(const Node& node, const NodeName& name) const REQUIRES_SHARED(mutex);
  void drop_child(NodeIndex parent) REQUIRES(mutex);
  void add_to(const Job* job, NodeIndex index) REQUIRES(mutex);
  void take_from(const Job* job, NodeIndex index) REQUIRES(mutex);

  Arena<Node> nodes_;
  NameIndex by_name_ GUARDED_BY(mutex);
  std::size_t freed_ GUARDED_BY(mutex) = 0;
  // The nodes of one job; under the key null, the nodes that belong to no job.
  struct NodesOfJob {
    NodeIndex first = 0;
    std::uint64_t count = 0;
    UserAccount* account = nullptr;  // charged for the nodes; null before the first charge_to()
    Charge charge;
  };
  std::unordered_map<const Job*, NodesOfJob> jobs_ GUARDED_BY(mutex);
};

}  // namespace cacheshim
