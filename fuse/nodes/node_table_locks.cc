// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "fuse/nodes/node_table.h"

// The lock state of a node's file, read and changed without the table's lock.
//
// One thread opens a file, another locks it.
//   1. The first counts its handle as silent, then reads takes_locks().
//   2. The second calls set_takes_locks(), then reads silent_handles().
// All accesses are sequentially consistent, so at least one of the two sees the other's change.
namespace cacheshim {

bool NodeTable::takes_locks(NodeIndex node) const {
  return std::atomic_ref(at(node).takes_locks) != 0;
}

void NodeTable::set_takes_locks(NodeIndex node) const { std::atomic_ref(at(node).takes_locks) = 1; }

std::optional<NodeTable::Inode> NodeTable::locked_inode(NodeIndex node) const {
  if (std::atomic_ref(at(node).locks_by_inode) == 0) return std::nullopt;
  const ReaderLock lock(mutex_);
  const FileId id = id_of(at(node));
  return Inode{id.device, id.inode};
}

void NodeTable::lock_by_inode(NodeIndex node) const {
  std::atomic_ref(at(node).locks_by_inode) = 1;
}

std::uint32_t NodeTable::silent_handles(NodeIndex node) const {
  return std::atomic_ref(at(node).silent);
}

void NodeTable::count_silent_handle(NodeIndex node, bool is_opened) const {
  std::atomic_ref(at(node).silent) += is_opened ? 1U : ~0U;
}

}  // namespace cacheshim
