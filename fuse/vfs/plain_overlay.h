// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/daemon.h"
#include "fuse/vfs/mount_copies.h"

namespace cacheshim {

// The open directories of a plain overlay. `upper` (or `upper_lock`) and `work_parent` hold locks: while they are open,
// no other cacheshim daemon can use these directories.
struct PlainOverlay {
  std::vector<UniqueFd> lowers;  // the topmost first
  UniqueFd upper;                // this and the descriptors below: empty if the overlay is read-only
  UniqueFd work;  // WORKDIR/work
  UniqueFd work_parent;
  UniqueFd upper_lock;  // holds the lock if `upper` was opened again
  MountCopies mounts;
  UniqueFd served;  // WORKDIR/work again, locked shared; close it once the mount is gone
};

// Opens the directories that `options.overlay` names, locks the upper directory and WORKDIR, and creates WORKDIR/work.
// Requires: options.overlay.
std::variant<PlainOverlay, DaemonError> open_plain_overlay(const DaemonOptions& options);

}  // namespace cacheshim
