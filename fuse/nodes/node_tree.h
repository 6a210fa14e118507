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
#include "store/sys/mutex.h"

namespace cacheshim {

// The nodes with their names, and the reader-writer lock over them. Only NodeTable, NodeNames and
// NodeObjects use this class. Takes about 130 bytes per file, including its name.
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
  // Charges `account` for the job's nodes, those that it has now and later ones.
  void charge_to(const Job* job, UserAccount& account) REQUIRES(mutex);
  bool is_charged_to(const Job* job, const UserAccount& account) const REQUIRES_SHARED(mutex);
  // Frees the node if it has no lookups and no children. Then does the same for its parent, and so on
  // upwards.
  void free_if_unused(NodeIndex node) REQUIRES(mutex);
  // Whether at least 65,536 nodes have been freed since the last call that returned true.
  bool take_many_freed() REQUIRES(mutex);

  // Returns 0 if there is none.
  NodeIndex find(const NodeName& name) const REQUIRES_SHARED(mutex);
  bool is_view_root(NodeIndex index) const REQUIRES_SHARED(mutex) {
    const Node& node = at(index);
    if (node.kind != NodeKind::kObject || !node.named) return false;
    return index == kRootNode || at(node.parent).kind != NodeKind::kObject;
  }
  // Gives a node a name, its first or a further one.
  void attach(NodeIndex node, const NodeName& name) REQUIRES(mutex);
  // Removes a name of the node. If it was the last one, the node keeps the descriptor `object`,
  // unless that is empty.
  void detach(NodeIndex node, const NodeName& name, ChargedFd object = {}) REQUIRES(mutex);
  void move_name(const NodeName& from, const NodeName& to) REQUIRES(mutex);
  // Calls `function(index, node)` for every name of a job's objects, except its roots.
  template <class Function>
  void for_each_of(const Job* job, Function&& function) const REQUIRES_SHARED(mutex) {
    by_name_.for_each([&](NodeIndex index) {
      const Node& node = at(index);
      if (node.job != job || node.kind != NodeKind::kObject || !node.named) return;
      if (at(node.parent).kind == NodeKind::kObject) function(index, node);
    });
  }

  mutable SharedMutex mutex{LockRank::kNodeTable};
  ObjectIds ids GUARDED_BY(mutex);
  HeldObjects held GUARDED_BY(mutex);

 private:
  bool has_name(const Node& node, const NodeName& name) const REQUIRES_SHARED(mutex);
  void drop_child(NodeIndex parent) REQUIRES(mutex);
  void count(const Job* job, int change) REQUIRES(mutex);

  Arena<Node> nodes_;
  NameIndex by_name_ GUARDED_BY(mutex);
  std::size_t freed_ GUARDED_BY(mutex) = 0;
  // The number of each job's nodes, from its first charge_to() on.
  struct Paid {
    UserAccount* account;
    Charge charge;
  };
  std::unordered_map<const Job*, Paid> paid_ GUARDED_BY(mutex);
};

}  // namespace cacheshim
