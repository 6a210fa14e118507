// SPDX-License-Identifier: Apache-2.0

#include "fuse/nodes/node_table.h"

// Functions for all nodes of a job: invalidations that concern all of them, and the end of its
// layer.
namespace cacheshim {

template <class Function>
void NodeTable::for_each_of(const Job* job, Function&& function) const {
  by_name_.for_each([&](NodeIndex index) {
    const Node& node = at(index);
    if (node.job != job || node.kind != NodeKind::kObject || !node.named) return;
    if (at(node.parent).kind == NodeKind::kObject) function(index, node);
  });
}

std::size_t NodeTable::drop_all(const Job* job, NodeIndex view_root) {
  const WriterLock lock(mutex_);
  std::vector<NodeIndex> files;
  std::size_t count = 0;
  for_each_of(job, [&](NodeIndex index, const Node& node) {
    ++count;
    const bool is_of_layer = !node.is_dir && node.common == Common::kNone;
    if (is_of_layer && index != view_root) files.push_back(index);
  });
  for (const NodeIndex index : files) {
    // Once per name, as often as the index was listed.
    const Node& node = at(index);
    const std::string component = node.name.get();
    if (node.named) detach(index, {node.parent, component}, UniqueFd());
  }
  return count;
}

std::vector<NodeTable::NamedNode> NodeTable::all_of(const Job* job) const {
  const ReaderLock lock(mutex_);
  std::vector<NamedNode> all;
  for_each_of(job, [&](NodeIndex index, const Node& node) {
    all.push_back({index, node.parent, node.name.get()});
  });
  return all;
}

}  // namespace cacheshim
