// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuse/mount.h"
#include "fuse/vfs/own_tree.h"
#include "fuse/vfs/request.h"

namespace cacheshim {

// Who changes what: every request that changes a layer comes by here first. A descriptor that is handed on is checked
// again when it is written to; what is written by a mapping, or by the kernel itself (passthrough), belongs to whoever
// opened the file. Thread-safe; call with no lock held.
class ChangeGuard {
 public:
  ChangeGuard(Mount& mount, OwnTree& own_tree) : mount_(mount), own_tree_(own_tree) {}

  // Call before a request that changes what `ino` is part of, and before one that opens it. An error is the request's.
  // Costs nothing where everybody may publish.
  Status note_change(const Request& request, NodeId ino);
  Status note_open(const Request& request, NodeId ino, int flags);
  // Whether the caller must not be served objects of this object's view, because it is another user's view.
  static bool is_kept_from(const Request& request, const NodeInfo& info);

 private:
  Mount& mount_;
  OwnTree& own_tree_;
};

}  // namespace cacheshim
