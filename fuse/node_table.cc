// SPDX-License-Identifier: Apache-2.0
#include "fuse/node_table.h"

#include <algorithm>

namespace cacheshim {
namespace {

// Inode numbers of the mount's own folders, away from those of any backing file system.
constexpr std::uint64_t kOwnInode = std::uint64_t{1} << 62;

}  // namespace

NodeTable::NodeTable() {
  const NodeIndex root = arena_.allocate();  // the first: kRootNode
  Node& node = at(root);
  node.kind = NodeKind::kRoot;
  node.is_dir = true;
  node.named = true;
  node.ino = kOwnInode | root;
  node.lookups = 1;
}

NodeInfo NodeTable::info(NodeIndex index) const {
  const std::lock_guard lock(mutex_);
  const Node& node = at(index);
  NodeInfo info;
  info.kind = node.kind;
  info.parent = node.name.parent;
  info.job = node.job;
  info.ino = node.ino;
  info.removed = !node.named;
  info.is_dir = node.is_dir;
  info.in_upper = node.in_upper;
  info.removed_fd = node.removed.get();
  info.is_view_root = node.kind == NodeKind::kObject && node.named &&
                      at(node.name.parent).kind != NodeKind::kObject;
  return info;
}

std::string NodeTable::name(NodeIndex index) const {
  const std::lock_guard lock(mutex_);
  return at(index).name.component;
}

Result<std::string> NodeTable::path(NodeIndex index) const {
  const std::lock_guard lock(mutex_);
  std::vector<const std::string*> components;
  std::size_t length = 0;
  for (;;) {
    const Node& node = at(index);
    if (!node.named || node.name.parent == 0) return Errno(ESTALE);
    if (at(node.name.parent).kind != NodeKind::kObject) break;
    components.push_back(&node.name.component);
    length += node.name.component.size() + 1;
    index = node.name.parent;
  }
  std::string path;
  path.reserve(length);
  for (auto it = components.rbegin(); it != components.rend(); ++it) {
    if (!path.empty()) path += '/';
    path += **it;
  }
  return path;
}

NodeIndex NodeTable::find_locked(NodeIndex parent, const std::string& name) const {
  const auto found = by_name_.find(Name{parent, name});
  return found == by_name_.end() ? 0 : found->second;
}

NodeIndex NodeTable::find(NodeIndex parent, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return find_locked(parent, name);
}

NodeIndex NodeTable::find_path(NodeIndex view_root, std::string_view path) const {
  const std::lock_guard lock(mutex_);
  NodeIndex node = view_root;
  while (node != 0 && !path.empty()) {
    const auto end = path.find('/');
    node = find_locked(node, std::string(path.substr(0, end)));
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
  }
  return node;
}

NodeIndex NodeTable::make(const Name& name, NodeKind kind, Job* job) {
  const NodeIndex index = arena_.allocate();
  Node& node = at(index);
  node.kind = kind;
  node.job = job;
  node.ino = kOwnInode | index;
  attach(index, name);
  return index;
}

void NodeTable::attach(NodeIndex index, const Name& name) {
  Node& node = at(index);
  if (!node.named) {
    node.name = name;
    node.named = true;
    node.removed.reset();
  } else {
    if (!node.further) node.further = std::make_unique<std::vector<Name>>();
    node.further->push_back(name);
  }
  by_name_[name] = index;
  ++at(name.parent).children;
}

void NodeTable::detach(NodeIndex index, const Name& name, UniqueFd removed) {
  by_name_.erase(name);
  Node& node = at(index);
  if (node.name == name) {
    if (node.further && !node.further->empty()) {
      node.name = std::move(node.further->back());
      node.further->pop_back();
    } else {
      node.named = false;
      node.name = Name{0, name.component};
      node.removed = std::move(removed);
    }
  } else if (node.further) {
    std::erase(*node.further, name);
  }
  drop_child(name.parent);
}

void NodeTable::drop_child(NodeIndex parent) {
  --at(parent).children;
  free_if_unused(parent);
}

void NodeTable::free_if_unused(NodeIndex index) {
  Node& node = at(index);
  if (node.lookups > 0 || node.children > 0) return;
  std::vector<Name> names;
  if (node.further) names = std::move(*node.further);
  if (node.named) names.push_back(node.name);
  if (const auto link = hard_links_.find(node.id);
      link != hard_links_.end() && link->second == index) {
    hard_links_.erase(link);
  }
  for (const Name& name : names) by_name_.erase(name);
  arena_.release(index);
  for (const Name& name : names) drop_child(name.parent);
}

NodeIndex NodeTable::intern_own(NodeIndex parent, const std::string& name, NodeKind kind,
                                Job* job) {
  const std::lock_guard lock(mutex_);
  NodeIndex index = find_locked(parent, name);
  if (index != 0 && at(index).kind != kind) {  // a job that came again with other rights
    detach(index, Name{parent, name}, UniqueFd());
    index = 0;
  }
  if (index == 0) index = make(Name{parent, name}, kind, job);
  Node& node = at(index);
  node.is_dir = kind != NodeKind::kRootLink && kind != NodeKind::kJobLink;
  ++node.lookups;
  return index;
}

// Only this daemon changes a layer, and it tells of every name that goes away. So an object in the
// layer where the base's was is its copy, and only in the base can a name lead to something else.
bool NodeTable::is_same(const Node& node, const FileId& id, bool is_dir, bool in_upper) const {
  if (node.is_dir != is_dir) return false;
  if (is_dir || node.id == id) return true;
  return in_upper && !node.in_upper;
}

NodeIndex NodeTable::intern(NodeIndex parent, const std::string& name, Job* job,
                            const struct stat& st, bool in_upper) {
  const std::lock_guard lock(mutex_);
  const FileId id{st.st_dev, st.st_ino};
  const bool is_dir = S_ISDIR(st.st_mode);
  const bool has_links = in_upper && !is_dir && st.st_nlink > 1;
  NodeIndex index = find_locked(parent, name);
  if (index != 0 && !is_same(at(index), id, is_dir, in_upper)) {
    detach(index, Name{parent, name}, UniqueFd());
    index = 0;
  }
  if (index == 0 && has_links) {
    if (const auto link = hard_links_.find(id); link != hard_links_.end()) {
      index = link->second;
      attach(index, Name{parent, name});
    }
  }
  if (index == 0) {
    index = make(Name{parent, name}, NodeKind::kObject, job);
    at(index).is_dir = is_dir;
    at(index).ino = st.st_ino;
    if (has_links) hard_links_[id] = index;
  }
  Node& node = at(index);
  node.id = id;
  node.in_upper = in_upper;
  ++node.lookups;
  return index;
}

void NodeTable::forget(NodeIndex index, std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  Node& node = at(index);
  node.lookups -= std::min(node.lookups, count);
  if (index != kRootNode) free_if_unused(index);
}

void NodeTable::add_link(NodeIndex index, NodeIndex parent, const std::string& name,
                         const struct stat& st) {
  const std::lock_guard lock(mutex_);
  if (const NodeIndex old = find_locked(parent, name); old != 0) {
    detach(old, Name{parent, name}, UniqueFd());
  }
  attach(index, Name{parent, name});
  Node& node = at(index);
  node.id = {st.st_dev, st.st_ino};
  node.in_upper = true;
  hard_links_[node.id] = index;
}

void NodeTable::remove(NodeIndex parent, const std::string& name, UniqueFd removed) {
  const std::lock_guard lock(mutex_);
  const NodeIndex index = find_locked(parent, name);
  if (index == 0) return;
  detach(index, Name{parent, name}, std::move(removed));
  free_if_unused(index);
}

void NodeTable::rename(NodeIndex parent, const std::string& name, NodeIndex new_parent,
                       const std::string& new_name) {
  const std::lock_guard lock(mutex_);
  const NodeIndex index = find_locked(parent, name);
  if (index == 0) return;
  const Name to{new_parent, new_name};
  const Name from{parent, name};
  ++at(new_parent).children;
  by_name_.erase(from);
  by_name_[to] = index;
  Node& node = at(index);
  if (node.name == from) {
    node.name = to;
  } else if (node.further) {
    std::replace(node.further->begin(), node.further->end(), from, to);
  }
  drop_child(parent);
}

void NodeTable::exchange(NodeIndex parent, const std::string& name, NodeIndex new_parent,
                         const std::string& new_name) {
  static const std::string kAside = "/";  // no component looks like this
  rename(parent, name, parent, kAside);
  rename(new_parent, new_name, parent, name);
  rename(parent, kAside, new_parent, new_name);
}

bool NodeTable::is_current(NodeIndex index, const struct stat& st, bool in_upper) const {
  const std::lock_guard lock(mutex_);
  return is_same(at(index), {st.st_dev, st.st_ino}, S_ISDIR(st.st_mode), in_upper);
}

void NodeTable::moved(NodeIndex index, const struct stat& st, bool in_upper) {
  const std::lock_guard lock(mutex_);
  Node& node = at(index);
  node.id = {st.st_dev, st.st_ino};
  node.in_upper = in_upper;
  ++node.epoch;
}

void NodeTable::published(NodeIndex parent, const std::string& name, const struct stat& base) {
  const std::lock_guard lock(mutex_);
  const NodeIndex index = find_locked(parent, name);
  if (index == 0) return;
  Node& node = at(index);
  if (node.further && !node.further->empty()) return detach(index, Name{parent, name}, UniqueFd());
  node.id = {base.st_dev, base.st_ino};
  node.in_upper = false;
  ++node.epoch;
}

std::uint32_t NodeTable::epoch(NodeIndex index) const {
  const std::lock_guard lock(mutex_);
  return at(index).epoch;
}

std::vector<std::pair<NodeIndex, std::string>> NodeTable::drop_all(Job* job, NodeIndex view_root) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<NodeIndex, Name>> doomed;
  for (const auto& [name, index] : by_name_) {
    const Node& node = at(index);
    if (node.job == job && node.kind == NodeKind::kObject && index != view_root) {
      doomed.emplace_back(index, name);
    }
  }
  std::vector<std::pair<NodeIndex, std::string>> names;
  for (const auto& [index, name] : doomed) {
    names.emplace_back(name.parent, name.component);
    if (!at(index).is_dir) detach(index, name, UniqueFd());
  }
  return names;
}

}  // namespace cacheshim
