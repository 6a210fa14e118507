// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fuse/daemon.h"

namespace cacheshim::cli {

// What the words of -o say, whatever is mounted.
struct MountOptions {
  unsigned long flags = 0;  // MS_*
  OwnerRule owners;
  std::string source;            // fsname=, unescaped; empty: not given
  bool may_be_nonempty = false;  // the mount point
};

// What a mount without -o has: nosuid, nodev.
MountOptions default_mount_options();

// The words in the texts of one or more -o: split at ',', but for one after '\', which goes. Any other
// '\' stays.
std::vector<std::string> split_options(const std::vector<std::string>& texts);

// Replaces each "\x" by x.
std::string undo_backslashes(std::string_view text);

// Takes one word into account, as mount(8) and fstab have them. False for one that is not known here.
bool apply_mount_option(const std::string& word, MountOptions& options);

// The -o of a store. Throws Failure (usage) for a word that is not known.
MountOptions parse_mount_options(const std::vector<std::string>& texts);

// The words that apply_mount_option() knows, for messages.
std::string known_mount_options();

}  // namespace cacheshim::cli
