// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuse/vfs/objects.h"
#include "fuse/vfs/own_tree.h"
#include "fuse/vfs/request.h"

namespace cacheshim {

// Serves opendir, readdir, releasedir and fsyncdir. Thread-safe; call with no lock held.
class Directories {
 public:
  Directories(Mount& mount, Objects& objects, OwnTree& own_tree)
      : mount_(mount), objects_(objects), own_tree_(own_tree) {}

  Result<OpenedFile> opendir(const Request& request, NodeId ino);
  // Calls `take` for each entry, starting at `offset`, until `take` returns false. `take` also gets the offset of the
  // next entry.
  Status readdir(const Request& request, NodeId ino, std::uint64_t fh, off_t offset,
                 const EntrySink& take);
  void releasedir(std::uint64_t fh);
  Status fsyncdir(NodeId ino);

 private:
  bool may_keep_listing(NodeIndex node, const NodeInfo& info)
      REQUIRES_SHARED(info.job->overlay.mutex());
  Status load(const Request& request, NodeRef ref, DirHandle& dir) REQUIRES(dir.mutex);

  Mount& mount_;
  Objects& objects_;
  OwnTree& own_tree_;
};

}  // namespace cacheshim
