// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/daemon.h"
#include "fuse/vfs/mount_copies.h"

namespace cacheshim {

// The directories of a plain overlay, open. While upper and work are, no other daemon of ours takes them.
struct PlainOverlay {
  std::vector<UniqueFd> lowers;  // the topmost first
  UniqueFd upper;                // empty, as what follows: read-only
  UniqueFd work;  // WORKDIR/work, ours alone; what an earlier daemon was in the middle of is gone
  UniqueFd work_parent;
  UniqueFd upper_lock;  // where `upper` was opened once more
  MountCopies mounts;
  UniqueFd served;  // WORKDIR/work again, locked shared; to be closed once the mount is gone
};

// Opens the directories that `options.overlay` names, for a mount with these flags at this mount point.
std::variant<PlainOverlay, DaemonError> open_plain_overlay(const DaemonOptions& options);

}  // namespace cacheshim
