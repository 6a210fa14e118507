// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fuse/nodes/held_objects.h"
#include "fuse/nodes/inode_numbers.h"
#include "fuse/nodes/node_info.h"
#include "fuse/nodes/node_state.h"

namespace cacheshim {

// A slot of the node table. The table's lock guards all members except `state`.
struct Node {
  // See NodeObjects::keep_ctime().
  struct KeptCtime {
    timespec actual;
    timespec shown;
  };
  // Data that few nodes have.
  struct Extra {
    std::vector<std::pair<NodeIndex, std::string>> names;  // all names except the first
    HeldObject object;
    std::optional<KeptCtime> ctime;
  };

  std::uint64_t lookups = 0;  // changed under the shared lock too, by std::atomic_ref
  std::uint64_t ino = 0;
  ino_t inode = 0;  // with `device`: identifies the object that has the data now
  Job* job = nullptr;
  std::unique_ptr<char[]> name;  // NUL-terminated
  std::unique_ptr<Extra> extra;
  NodeIndex parent = 0;        // 0 for the root, and for a node without a name
  NodeIndex next = 0;          // the next node of the same job; 0 at the end
  NodeIndex previous = 0;
  std::uint32_t children = 0;  // the number of names whose parent this node is
  [[no_unique_address]] NodeState state;
  CommonKind common = CommonKind::kNone;
  InodeNumbers::Place device = 0;
  NodeKind kind = NodeKind::kObject;
  bool was_unlinked : 1 = false;
  bool is_dir : 1 = false;
  bool in_upper : 1 = false;
  bool named : 1 = false;

  std::size_t name_count() const { return named ? 1 + (extra ? extra->names.size() : 0) : 0; }
  bool has_further_names() const { return extra && !extra->names.empty(); }
  bool is_first_name(const NodeName& other) const {
    return named && parent == other.parent && name.get() == other.component;
  }
  Extra& ensure_extra() {
    if (!extra) extra = std::make_unique<Extra>();
    return *extra;
  }
};

}  // namespace cacheshim
