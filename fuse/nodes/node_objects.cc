// SPDX-License-Identifier: Apache-2.0
#include "fuse/nodes/node_objects.h"

#include <utility>
#include <vector>

#include "store/sys/same_time.h"

namespace cacheshim {
namespace {

timespec shown_by(const Node& node, const timespec& actual) {
  if (!node.extra || !node.extra->ctime) return actual;
  const Node::KeptCtime& kept = *node.extra->ctime;
  return is_same_time(kept.actual, actual) ? kept.shown : actual;
}

}  // namespace

bool NodeObjects::is_current(NodeIndex index, const struct stat& st, bool in_upper) const {
  const ReaderLock lock(tree_.mutex);
  return tree_.ids.is_same(tree_.at(index), st, in_upper);
}

void NodeObjects::make_root_view(Job* job, const struct stat& st, bool in_upper) {
  const WriterLock lock(tree_.mutex);
  Node& root = tree_.at(kRootNode);
  root.kind = NodeKind::kObject;
  root.job = job;
  tree_.ids.set_first(root, st);
  root.ino = ObjectIds::number_of(root);
  root.in_upper = in_upper;
}

void NodeObjects::moved(NodeIndex index, const struct stat& st, bool in_upper) {
  const WriterLock lock(tree_.mutex);
  Node& node = tree_.at(index);
  tree_.ids.move(index, node, st);
  node.in_upper = in_upper;
  node.state.set_lacks_capabilities(false);
  node.state.begin_epoch();
}

void NodeObjects::published(NodeIndex parent, std::string_view component, const struct stat& base) {
  const WriterLock lock(tree_.mutex);
  const NodeName name{parent, component};
  const NodeIndex index = tree_.find(name);
  if (index == 0) return;
  Node& node = tree_.at(index);
  if (node.has_further_names()) return tree_.detach(index, name);
  tree_.ids.set(index, node, base);
  node.in_upper = false;
  node.state.begin_epoch();
}

void NodeObjects::keep_ctime(NodeIndex index, const timespec& before, const timespec& after) {
  const WriterLock lock(tree_.mutex);
  Node& node = tree_.at(index);
  const timespec shown = shown_by(node, before);
  node.ensure_extra().ctime = {after, shown};
}

timespec NodeObjects::shown_ctime(NodeIndex index, const timespec& actual) const {
  const ReaderLock lock(tree_.mutex);
  return shown_by(tree_.at(index), actual);
}

void NodeObjects::copied_nameless(NodeIndex index, const struct stat& st, UniqueFd object) {
  SharedFd before;  // closed after the lock is released
  const WriterLock lock(tree_.mutex);
  Node& node = tree_.at(index);
  before = std::exchange(node.ensure_extra().object.fd,
                         std::make_shared<const UniqueFd>(std::move(object)));
  tree_.ids.set(index, node, st);
  node.in_upper = true;
  node.state.begin_epoch();
}

void NodeObjects::become_common(NodeIndex index, CommonFile file) {
  std::vector<SharedFd> released;  // closed after the lock is released
  const WriterLock lock(tree_.mutex);
  Node& node = tree_.at(index);
  const bool is_copy = !tree_.ids.is_at(node, file.st);
  tree_.ids.move(index, node, file.st);
  node.in_upper = false;
  node.common = file.kind;
  if (is_copy) node.state.begin_epoch();
  tree_.held.hold_common(node.ensure_extra().object, std::move(file.object));
  released = tree_.held.take_released();
}

void NodeObjects::become_own(NodeIndex index, const struct stat& st) {
  std::vector<SharedFd> released;  // closed after the lock is released
  const WriterLock lock(tree_.mutex);
  Node& node = tree_.at(index);
  tree_.ids.move(index, node, st);
  node.in_upper = true;
  node.common = CommonKind::kNone;
  node.state.lock_by_inode();
  if (node.extra) tree_.held.release_common(node.extra->object);
  released = tree_.held.take_released();
}

std::optional<FileId> NodeObjects::locked_inode(NodeIndex index) const {
  const Node& node = tree_.at(index);
  if (!node.state.locks_by_inode()) return std::nullopt;
  const ReaderLock lock(tree_.mutex);
  return tree_.ids.id_of(node);
}

std::uint64_t NodeObjects::shown_inode(NodeIndex parent, std::string_view name, dev_t device,
                                       ino_t listed) {
  {
    const ReaderLock lock(tree_.mutex);
    if (const NodeIndex index = tree_.find({parent, name}); index != 0) return tree_.at(index).ino;
    if (const auto number = tree_.ids.find_number(device, listed)) return *number;
  }
  const WriterLock lock(tree_.mutex);
  return tree_.ids.number(device, listed);
}

void NodeObjects::add_device(dev_t device) {
  const WriterLock lock(tree_.mutex);
  (void)tree_.ids.number(device, 0);  // makes the device known
}

}  // namespace cacheshim
