// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cacheshim {

using NodeIndex = std::uint32_t;
using ViewSlot = std::uint16_t;  // the index of a view in its job
using NodeId = std::uint64_t;    // a node and its view, as one number for the kernel

// A node and the view in which a process sees it.
struct NodeRef {
  NodeIndex node = 0;  // 0 if there is none
  ViewSlot slot = 0;
};

inline NodeRef decode(NodeId id) {
  return {static_cast<NodeIndex>(id & 0xffffffff), static_cast<ViewSlot>(id >> 32)};
}

inline NodeId encode(NodeRef ref) {
  return static_cast<NodeId>(ref.node) | (static_cast<NodeId>(ref.slot) << 32);
}

}  // namespace cacheshim
