// SPDX-License-Identifier: Apache-2.0
#include "fuse/nodes/node_tree.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/direct_page.h"

namespace cacheshim {
namespace {

// Inode numbers of the mount's own directories, outside the range of InodeNumbers.
constexpr std::uint64_t kOwnInode = std::uint64_t{1} << 62;
static_assert((kOwnInode | kRootNode) == kMountRootInode);
constexpr std::size_t kManyFreed = 1 << 16;

std::unique_ptr<char[]> copy_of(std::string_view text) {
  auto copy = std::make_unique_for_overwrite<char[]>(text.size() + 1);
  std::memcpy(copy.get(), text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

std::uint64_t hash_of(const NodeName& name) {
  return XXH3_64bits_withSeed(name.component.data(), name.component.size(), name.parent);
}

}  // namespace

NodeTree::NodeTree() {
  const NodeIndex root = nodes_.allocate();  // the first node is kRootNode
  Node& node = at(root);
  node.kind = NodeKind::kRoot;
  node.is_dir = true;
  node.named = true;
  node.ino = kOwnInode | root;
  node.name = copy_of("");
  node.lookups = 1;
}

NodeIndex NodeTree::make(const NodeName& name, NodeKind kind, Job* job) {
  const NodeIndex index = nodes_.allocate();
  Node& node = at(index);
  node.kind = kind;
  node.job = job;
  node.ino = kOwnInode | index;
  add_to(job, index);
  attach(index, name);
  return index;
}

NodeIndex NodeTree::make_nameless(Job* job) {
  const NodeIndex index = nodes_.allocate();
  Node& node = at(index);
  node.job = job;
  node.name = copy_of("");
  add_to(job, index);
  return index;
}

void NodeTree::charge_to(const Job* job, UserAccount& account) {
  NodesOfJob& nodes = jobs_[job];
  nodes.account = &account;
  nodes.charge = Charge(&account, Limit::kNodes);
  nodes.charge.set(nodes.count);
}

bool NodeTree::is_charged_to(const Job* job, const UserAccount& account) const {
  const auto found = jobs_.find(job);
  return found != jobs_.end() && found->second.account == &account;
}

void NodeTree::add_to(const Job* job, NodeIndex index) {
  NodesOfJob& nodes = jobs_[job];
  at(index).next = nodes.first;
  if (nodes.first != 0) at(nodes.first).previous = index;
  nodes.first = index;
  ++nodes.count;
  if (nodes.account != nullptr) nodes.charge.set(nodes.count);
}

void NodeTree::take_from(const Job* job, NodeIndex index) {
  NodesOfJob& nodes = jobs_[job];
  const Node& node = at(index);
  (node.previous != 0 ? at(node.previous).next : nodes.first) = node.next;
  if (node.next != 0) at(node.next).previous = node.previous;
  --nodes.count;
  if (nodes.account != nullptr) nodes.charge.set(nodes.count);
}

bool NodeTree::forget_job(const Job* job, NodeIndex view_root) {
  Node& root = at(view_root);
  if (jobs_[job].count != 1 || root.lookups != 1) return false;
  root.lookups = 0;
  free_if_unused(view_root);
  jobs_.erase(job);
  return true;
}

bool NodeTree::has_name(const Node& node, const NodeName& name) const {
  if (node.is_first_name(name)) return true;
  if (!node.extra) return false;
  const auto& further = node.extra->names;
  return std::any_of(further.begin(), further.end(), [&](const auto& other) {
    return other.first == name.parent && other.second == name.component;
  });
}

NodeIndex NodeTree::find(const NodeName& name) const {
  return by_name_.find(hash_of(name), [&](NodeIndex index) {
    mutex.assert_held_shared();
    return has_name(at(index), name);
  });
}

void NodeTree::attach(NodeIndex index, const NodeName& name) {
  Node& node = at(index);
  if (!node.named) {
    node.parent = name.parent;
    node.name = copy_of(name.component);
    node.named = true;
    node.was_unlinked = false;
    if (node.extra && node.common == CommonKind::kNone) node.extra->object = {};
  } else {
    node.ensure_extra().names.emplace_back(name.parent, name.component);
  }
  by_name_.insert(hash_of(name), index);
  ++at(name.parent).children;
}

void NodeTree::detach(NodeIndex index, const NodeName& name, ChargedFd object) {
  by_name_.erase(hash_of(name), index);
  Node& node = at(index);
  const NodeIndex parent = name.parent;
  if (!node.is_first_name(name)) {
    std::erase_if(node.extra->names, [&](const auto& other) {
      return other.first == name.parent && other.second == name.component;
    });
  } else if (node.has_further_names()) {
    const auto next = std::move(node.extra->names.back());
    node.extra->names.pop_back();
    node.parent = next.first;
    node.name = copy_of(next.second);
  } else {
    node.named = false;
    node.parent = 0;
    if (object.fd) held.hold(node.ensure_extra().object, std::move(object));
  }
  held.release(std::move(object.fd));
  drop_child(parent);
}

void NodeTree::move_name(const NodeName& from, const NodeName& to) {
  const NodeIndex index = find(from);
  if (index == 0) return;
  ++at(to.parent).children;
  by_name_.erase(hash_of(from), index);
  by_name_.insert(hash_of(to), index);
  Node& node = at(index);
  const NodeIndex left = from.parent;
  if (node.is_first_name(from)) {
    node.parent = to.parent;
    node.name = copy_of(to.component);
  } else {
    for (auto& [parent, component] : node.extra->names) {
      if (parent != from.parent || component != from.component) continue;
      parent = to.parent;
      component = to.component;
      break;
    }
  }
  drop_child(left);
}

void NodeTree::drop_child(NodeIndex parent) {
  --at(parent).children;
  free_if_unused(parent);
}

void NodeTree::free_if_unused(NodeIndex index) {
  Node& node = at(index);
  if (node.lookups > 0 || node.children > 0 || index == kRootNode) return;
  ids.drop_linked(index, node);
  std::vector<NodeIndex> parents;
  if (node.named) {
    parents.push_back(node.parent);
    by_name_.erase(hash_of({node.parent, node.name.get()}), index);
  }
  if (node.extra) {
    for (const auto& [parent, component] : node.extra->names) {
      parents.push_back(parent);
      by_name_.erase(hash_of({parent, component}), index);
    }
    held.release_object(node.extra->object);
  }
  take_from(node.job, index);
  nodes_.release(index);
  ++freed_;
  for (const NodeIndex parent : parents) drop_child(parent);
}

bool NodeTree::take_many_freed() {
  if (freed_ < kManyFreed) return false;
  freed_ = 0;
  return true;
}

}  // namespace cacheshim
