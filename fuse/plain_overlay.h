// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/daemon.h"

namespace cacheshim {

// The folders of a plain overlay, open. While upper and work are, no other daemon of ours takes them.
struct PlainOverlay {
  std::vector<UniqueFd> lowers;  // the topmost first
  UniqueFd upper;                // empty, as what follows: read-only
  UniqueFd work;  // WORKDIR/work, ours alone; what an earlier daemon was in the middle of is gone
  UniqueFd work_parent;
};

std::variant<PlainOverlay, DaemonError> open_plain_overlay(const OverlayFolders& folders);

}  // namespace cacheshim
