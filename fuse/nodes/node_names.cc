// SPDX-License-Identifier: Apache-2.0
#include "fuse/nodes/node_names.h"

#include <limits>
#include <utility>

namespace cacheshim {

void NodeNames::add_link(NodeIndex index, NodeIndex parent, std::string_view component,
                         const struct stat& st) {
  const WriterLock lock(tree_.mutex);
  const NodeName name{parent, component};
  if (const NodeIndex old = tree_.find(name); old != 0) tree_.detach(old, name);
  tree_.attach(index, name);
  Node& node = tree_.at(index);
  tree_.ids.set(index, node, st);
  node.in_upper = true;
  tree_.ids.add_linked(index, node);
}

void NodeNames::remove(NodeIndex parent, std::string_view component, Removed removed) {
  std::vector<SharedFd> released;  // closed after the lock is released
  const WriterLock lock(tree_.mutex);
  const NodeName name{parent, component};
  const NodeIndex index = tree_.find(name);
  if (index == 0) return;
  Node& node = tree_.at(index);
  // For a directory, node.in_upper may be out of date since the lookup.
  if (removed.object.fd) node.in_upper = removed.in_upper;
  tree_.detach(index, name, std::move(removed.object));
  node.was_unlinked = !node.named;
  tree_.free_if_unused(index);
  released = tree_.held.take_released();
}

void NodeNames::replace_name_by_descriptor(NodeIndex index, ChargedFd object) {
  std::vector<SharedFd> released;  // closed after the lock is released
  const WriterLock lock(tree_.mutex);
  Node& node = tree_.at(index);
  if (node.named) {
    const std::string component = node.name.get();
    tree_.detach(index, {node.parent, component}, std::move(object));
  } else {
    tree_.held.hold(node.ensure_extra().object, std::move(object));
  }
  released = tree_.held.take_released();
}

void NodeNames::detach_stale(NodeIndex parent, std::string_view component,
                             const struct stat& made) {
  const NodeName name{parent, component};
  {
    const ReaderLock lock(tree_.mutex);
    if (tree_.find(name) == 0) return;
  }
  const WriterLock lock(tree_.mutex);
  const NodeIndex index = tree_.find(name);
  if (index != 0 && !tree_.ids.is_at(tree_.at(index), made)) tree_.detach(index, name);
}

void NodeNames::rename(NodeIndex parent, std::string_view name, NodeIndex new_parent,
                       std::string_view new_name) {
  const WriterLock lock(tree_.mutex);
  tree_.move_name({parent, name}, {new_parent, new_name});
}

void NodeNames::exchange(NodeIndex parent, std::string_view name, NodeIndex new_parent,
                         std::string_view new_name) {
  const WriterLock lock(tree_.mutex);
  const NodeName aside{parent, "/"};  // no path component equals this
  tree_.move_name({parent, name}, aside);
  tree_.move_name({new_parent, new_name}, {parent, name});
  tree_.move_name(aside, {new_parent, new_name});
}

NodeIndex NodeNames::find(NodeIndex parent, std::string_view name) const {
  const ReaderLock lock(tree_.mutex);
  return tree_.find({parent, name});
}

NodeIndex NodeNames::find_path(NodeIndex view_root, std::string_view path) const {
  const ReaderLock lock(tree_.mutex);
  NodeIndex node = view_root;
  while (node != 0 && !path.empty()) {
    const auto end = path.find('/');
    node = tree_.find({node, path.substr(0, end)});
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
  }
  return node;
}

std::size_t NodeNames::drop_all(const Job* job, NodeIndex view_root) {
  const WriterLock lock(tree_.mutex);
  std::vector<NodeIndex> files;
  std::size_t count = 0;
  tree_.for_each_of(job, [&](NodeIndex index, const Node& node) {
    ++count;
    const bool is_of_layer = !node.is_dir && node.common == CommonKind::kNone;
    if (is_of_layer && index != view_root) files.push_back(index);
  });
  for (const NodeIndex index : files) {
    // A node with several names is in the list once for each of them.
    const Node& node = tree_.at(index);
    const std::string component = node.name.get();
    if (node.named) tree_.detach(index, {node.parent, component});
  }
  return count;
}

std::vector<NodeNames::NamedNode> NodeNames::all_of(const Job* job) const {
  return some_of(job, std::numeric_limits<std::size_t>::max());
}

std::vector<NodeNames::NamedNode> NodeNames::some_of(const Job* job, std::size_t most) const {
  const ReaderLock lock(tree_.mutex);
  std::vector<NamedNode> some;
  tree_.for_each_of(job, [&](NodeIndex index, const Node& node) {
    if (some.size() < most) some.push_back({index, node.parent, node.name.get()});
  });
  return some;
}

std::vector<NodeNames::NamedNode> NodeNames::some_files_of(
    const Job* job, std::size_t most, const std::function<bool(NodeIndex)>& is_wanted) const {
  const ReaderLock lock(tree_.mutex);
  std::vector<NamedNode> some;
  tree_.for_each_of(job, [&](NodeIndex index, const Node& node) {
    if (some.size() >= most || node.is_dir || node.has_further_names() || !is_wanted(index)) return;
    some.push_back({index, node.parent, node.name.get()});
  });
  return some;
}

}  // namespace cacheshim
