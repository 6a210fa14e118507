// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "fuse/node_table.h"

// What a node knows of the locks on its file, read and changed without the table's lock.
//
// One thread opens a file, another locks it. The first counts its handle as silent and then reads
// takes_locks(); the second calls set_takes_locks() and then reads silent_handles(). All are sequentially
// consistent, so that one of the two at least sees the other.
namespace cacheshim {

bool NodeTable::takes_locks(NodeIndex node) const {
  return std::atomic_ref(at(node).takes_locks) != 0;
}

void NodeTable::set_takes_locks(NodeIndex node) const { std::atomic_ref(at(node).takes_locks) = 1; }

std::uint32_t NodeTable::silent_handles(NodeIndex node) const {
  return std::atomic_ref(at(node).silent);
}

void NodeTable::count_silent_handle(NodeIndex node, bool is_opened) const {
  std::atomic_ref(at(node).silent) += is_opened ? 1U : ~0U;
}

}  // namespace cacheshim
