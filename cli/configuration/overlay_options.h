// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/configuration/mount_options.h"
#include "fuse/daemon.h"

namespace cacheshim::cli {

// The parsed -o arguments of a plain overlay. Users write them as for fuse-overlayfs.
struct OverlayOptions {
  OverlayDirectories directories;  // as given, not checked yet
  MountOptions mount;
  std::vector<std::string> ignored;  // options that have no effect here
  std::vector<std::string> denied;   // suid or dev, which only root may set
};

// Throws Failure (usage) for an unknown word, an invalid value, or missing directories. `is_root`:
// whether suid and dev are allowed.
OverlayOptions parse_overlay_options(const std::vector<std::string>& texts, bool is_root);

}  // namespace cacheshim::cli
