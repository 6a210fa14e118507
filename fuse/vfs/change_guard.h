// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuse/mount.h"
#include "fuse/vfs/own_tree.h"
#include "fuse/vfs/request.h"

namespace cacheshim {

// Checks, before each request that changes a layer, whether the caller may publish. If not, the layer may not be
// published from then on (JobPolicy::refuse). This class checks every write, because a process may have received the
// descriptor from another process. Writes through a mapping, and writes by the kernel itself (passthrough), count as
// writes by the process that opened the file. Thread-safe; call with no lock held.
class ChangeGuard {
 public:
  ChangeGuard(Mount& mount, OwnTree& own_tree) : mount_(mount), own_tree_(own_tree) {}

  // Call note_change() before a request that changes the view of `ino`, and note_open() before a request that opens
  // `ino`. If they return an error, the request must fail with it. Both return immediately if all users may publish.
  Status note_change(const Request& request, NodeId ino);
  Status note_open(const Request& request, NodeId ino, int flags);
  // Whether the caller must not get the object, because the object is in another user's view.
  static bool is_kept_from(const Request& request, const NodeInfo& info);

 private:
  Mount& mount_;
  OwnTree& own_tree_;
};

}  // namespace cacheshim
