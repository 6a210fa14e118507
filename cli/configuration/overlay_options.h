// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/configuration/mount_options.h"
#include "fuse/daemon.h"

namespace cacheshim::cli {

// The -o of a plain overlay, spelled as fuse-overlayfs spells it.
struct OverlayOptions {
  OverlayFolders directories;  // as given, not looked at yet
  MountOptions mount;
  std::vector<std::string> ignored;  // words that switch something we do not have
  std::vector<std::string> denied;   // suid or dev, which only root may set
};

// Throws Failure (usage) for a word that is not known, a bad value, or directories that are missing
// in it. `is_root`: whether suid and dev are allowed.
OverlayOptions parse_overlay_options(const std::vector<std::string>& texts, bool is_root);

}  // namespace cacheshim::cli
