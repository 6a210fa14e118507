// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "fuse/nodes/node_table.h"

// Changes of names.
namespace cacheshim {

void NodeTable::add_link(NodeIndex index, NodeIndex parent, std::string_view component,
                         const struct stat& st) {
  const WriterLock lock(mutex_);
  const Name name{parent, component};
  if (const NodeIndex old = find_locked(name); old != 0) detach(old, name, UniqueFd());
  attach(index, name);
  Node& node = at(index);
  set_id(node, st);
  node.in_upper = true;
  hard_links_[{id_of(node), node.job}] = index;
}

void NodeTable::remove(NodeIndex parent, std::string_view component, Removed removed) {
  std::vector<std::shared_ptr<const UniqueFd>> doomed;  // closed last
  const WriterLock lock(mutex_);
  const Name name{parent, component};
  const NodeIndex index = find_locked(name);
  if (index == 0) return;
  // A directory's in_upper has not been updated since its lookup.
  if (removed.object) at(index).in_upper = removed.in_upper;
  detach(index, name, std::move(removed.object));
  at(index).was_unlinked = !at(index).named;
  free_if_unused(index);
  doomed = take_doomed();
}

void NodeTable::lose_name(NodeIndex index, UniqueFd object) {
  std::vector<std::shared_ptr<const UniqueFd>> doomed;  // closed last
  const WriterLock lock(mutex_);
  Node& node = at(index);
  if (node.named) {
    const std::string component = node.name.get();
    detach(index, {node.parent, component}, std::move(object));
  } else if (!extra_of(node).object) {
    extra_of(node).object = std::make_shared<const UniqueFd>(std::move(object));
  }
  doomed = take_doomed();
}

void NodeTable::part(NodeIndex parent, std::string_view component, const struct stat& made) {
  const Name name{parent, component};
  {
    const ReaderLock lock(mutex_);
    if (find_locked(name) == 0) return;
  }
  const WriterLock lock(mutex_);
  const NodeIndex index = find_locked(name);
  if (index != 0 && id_of(at(index)) != FileId{made.st_dev, made.st_ino}) {
    detach(index, name, UniqueFd());
  }
}

void NodeTable::copied_nameless(NodeIndex index, const struct stat& st, UniqueFd object) {
  std::shared_ptr<const UniqueFd> before;  // closed last
  const WriterLock lock(mutex_);
  Node& node = at(index);
  before = std::exchange(extra_of(node).object,
                         std::make_shared<const UniqueFd>(std::move(object)));
  set_id(node, st);
  node.in_upper = true;
  std::atomic_ref(node.epoch).fetch_add(1);
}

void NodeTable::rename(NodeIndex parent, std::string_view name, NodeIndex new_parent,
                       std::string_view new_name) {
  const WriterLock lock(mutex_);
  rename_locked({parent, name}, {new_parent, new_name});
}

void NodeTable::exchange(NodeIndex parent, std::string_view name, NodeIndex new_parent,
                         std::string_view new_name) {
  const WriterLock lock(mutex_);
  const Name aside{parent, "/"};  // no path component equals this
  rename_locked({parent, name}, aside);
  rename_locked({new_parent, new_name}, {parent, name});
  rename_locked(aside, {new_parent, new_name});
}

}  // namespace cacheshim
