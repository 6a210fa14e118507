// SPDX-License-Identifier: Apache-2.0
#include "fuse/nodes/node_table.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace cacheshim {

bool NodeTable::is_known(NodeIndex index) const {
  const ReaderLock lock(tree_.mutex);
  return tree_.is_in_use(index);
}

void NodeTable::charge_to(const Job& job, UserAccount& account) {
  {
    const ReaderLock lock(tree_.mutex);
    if (tree_.is_charged_to(&job, account)) return;
  }
  const WriterLock lock(tree_.mutex);
  tree_.charge_to(&job, account);
}

// The job table holds one lookup of each view's root, so only a further lookup comes from the kernel. The kernel knows
// the mount's root without a lookup.
bool NodeTable::is_looked_up(NodeIndex view_root) const {
  const ReaderLock lock(tree_.mutex);
  return view_root == kRootNode || std::atomic_ref(tree_.at(view_root).lookups) > 1;
}

bool NodeTable::forget_job(const Job& job, NodeIndex view_root) {
  const WriterLock lock(tree_.mutex);
  return tree_.forget_job(&job, view_root);
}

bool NodeTable::is_removed(NodeIndex index, const Job& job) const {
  const ReaderLock lock(tree_.mutex);
  if (!tree_.is_in_use(index)) return false;
  const Node& node = tree_.at(index);
  return node.job == &job && !node.named && node.in_upper;
}

NodeInfo NodeTable::info(NodeIndex index) const {
  const ReaderLock lock(tree_.mutex);
  const Node& node = tree_.at(index);
  NodeInfo info;
  info.kind = node.kind;
  info.parent = node.parent;
  info.job = node.job;
  info.ino = node.ino;
  info.removed = !node.named;
  info.is_dir = node.is_dir;
  info.in_upper = node.in_upper;
  info.was_unlinked = node.was_unlinked;
  info.common = node.common;
  if (node.extra) info.object = node.extra->object.fd;
  info.is_view_root = tree_.is_view_root(index);
  return info;
}

std::string NodeTable::name(NodeIndex index) const {
  const ReaderLock lock(tree_.mutex);
  return tree_.at(index).name.get();
}

Result<std::string> NodeTable::path(NodeIndex index) const {
  const ReaderLock lock(tree_.mutex);
  std::vector<std::string_view> components;
  std::size_t length = 0;
  for (;;) {
    if (tree_.is_view_root(index)) break;
    const Node& node = tree_.at(index);
    if (!node.named || node.parent == 0) return Errno(ESTALE);
    components.emplace_back(node.name.get());
    length += components.back().size() + 1;
    index = node.parent;
  }
  std::string path;
  path.reserve(length);
  for (auto it = components.rbegin(); it != components.rend(); ++it) {
    if (!path.empty()) path += '/';
    path += *it;
  }
  return path;
}

NodeIndex NodeTable::intern_own(NodeIndex parent, std::string_view component, NodeKind kind,
                                Job* job) {
  const WriterLock lock(tree_.mutex);
  const NodeName name{parent, component};
  NodeIndex index = tree_.find(name);
  // The job has restarted with another value of shared_uids.
  if (index != 0 && tree_.at(index).kind != kind) {
    tree_.detach(index, name);
    index = 0;
  }
  if (index == 0) index = tree_.make(name, kind, job);
  Node& node = tree_.at(index);
  node.is_dir = kind != NodeKind::kRootLink && kind != NodeKind::kJobLink;
  ++node.lookups;
  return index;
}

bool NodeTable::is_unchanged(const Node& node, const Found& found) const {
  return node.is_dir == S_ISDIR(found.st.st_mode) && node.in_upper == found.in_upper &&
         tree_.ids.is_at(node, found.st);
}

NodeIndex NodeTable::intern(NodeIndex parent, std::string_view component, Job* job,
                            const Found& found) {
  const NodeName name{parent, component};
  {
    const ReaderLock lock(tree_.mutex);
    const NodeIndex index = tree_.find(name);
    const bool is_known = index != 0 && is_unchanged(tree_.at(index), found);
    if (is_known && tree_.at(index).common == CommonKind::kNone) {
      std::atomic_ref(tree_.at(index).lookups).fetch_add(1, std::memory_order_relaxed);
      return index;
    }
  }
  const WriterLock lock(tree_.mutex);
  return intern_locked(name, job, found, CommonKind::kNone);
}

NodeIndex NodeTable::intern_common(NodeIndex parent, std::string_view component, Job* job,
                                   CommonFile file) {
  std::vector<SharedFd> released;  // closed after the lock is released
  const WriterLock lock(tree_.mutex);
  const NodeIndex index = intern_locked({parent, component}, job, Found{file.st, false}, file.kind);
  tree_.held.hold_common(tree_.at(index).ensure_extra().object, std::move(file.object));
  released = tree_.held.take_released();
  return index;
}

// Returns the node that the file already has under another name, and adds this name to the node; 0 if there is none.
NodeIndex NodeTable::find_linked(const NodeName& name, Job* job, const struct stat& st) {
  const NodeIndex index = tree_.ids.find_linked(st, job);
  if (index != 0) tree_.attach(index, name);
  return index;
}

NodeIndex NodeTable::intern_locked(const NodeName& name, Job* job, const Found& found,
                                   CommonKind kind) {
  const struct stat& st = found.st;
  const bool is_dir = S_ISDIR(st.st_mode);
  // False for a common file: a process outside the mount may give the file a second name, and the job may copy the file
  // up under that name.
  const bool has_links = !is_dir && st.st_nlink > 1 && kind == CommonKind::kNone;
  NodeIndex index = tree_.find(name);
  // Compares the kinds too: a name's kind changes when the job may no longer share files.
  const bool is_known = index != 0 && tree_.at(index).common == kind &&
                        tree_.ids.is_same(tree_.at(index), st, found.in_upper);
  if (index != 0 && !is_known) {
    tree_.detach(index, name);
    index = 0;
  }
  if (index == 0 && has_links) index = find_linked(name, job, st);
  if (index == 0) {
    index = tree_.make(name, NodeKind::kObject, job);
    Node& node = tree_.at(index);
    node.common = kind;
    node.is_dir = is_dir;
    tree_.ids.set_first(node, st);
    node.ino = found.origin ? tree_.ids.number(found.origin->device, found.origin->inode)
                            : ObjectIds::number_of(node);
    if (has_links) tree_.ids.add_linked(index, node);
  }
  Node& node = tree_.at(index);
  tree_.ids.move(index, node, st);
  node.in_upper = found.in_upper;
  ++node.lookups;
  return index;
}

NodeIndex NodeTable::intern_nameless(Job* job, const struct stat& st, ChargedFd object) {
  const WriterLock lock(tree_.mutex);
  const NodeIndex index = tree_.make_nameless(job);
  Node& node = tree_.at(index);
  node.in_upper = true;
  node.lookups = 1;
  tree_.ids.set_first(node, st);
  node.ino = ObjectIds::number_of(node);
  tree_.held.hold(node.ensure_extra().object, std::move(object));
  return index;
}

void NodeTable::count_lookup(NodeIndex index) {
  const ReaderLock lock(tree_.mutex);
  std::atomic_ref(tree_.at(index).lookups).fetch_add(1, std::memory_order_relaxed);
}

void NodeTable::forget(NodeIndex index, std::uint64_t count) {
  {
    const ReaderLock lock(tree_.mutex);
    if (!tree_.is_in_use(index)) return;
    std::atomic_ref lookups(tree_.at(index).lookups);
    std::uint64_t known = lookups.load(std::memory_order_relaxed);
    while (known > count) {
      if (lookups.compare_exchange_weak(known, known - count)) return;
    }
  }
  std::vector<SharedFd> released;
  bool trims = false;
  {
    const WriterLock lock(tree_.mutex);
    Node& node = tree_.at(index);
    node.lookups -= std::min(node.lookups, count);
    tree_.free_if_unused(index);
    trims = tree_.take_many_freed();
    released = tree_.held.take_released();
  }
  closer_.close(std::move(released));
  if (trims) (void)::malloc_trim(0);  // 0 is no error: there was no memory to return
}

}  // namespace cacheshim
