// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fuse/daemon.h"

namespace cacheshim::cli {

// The options that all kinds of mounts share.
struct MountOptions {
  unsigned long flags = 0;  // MS_*
  OwnerMode owners;
  std::string source;            // the value of fsname=, unescaped; "" if it is not given
  bool may_be_nonempty = false;  // whether the mount point may have contents
};

// Returns the defaults of a mount without -o: nosuid, nodev.
MountOptions default_mount_options();

// Splits the arguments of one or more -o at ','. "\," is a comma within a word; any other '\' is
// kept.
std::vector<std::string> split_options(const std::vector<std::string>& texts);

// Replaces each "\x" with x.
std::string undo_backslashes(std::string_view text);

// Applies one word with the semantics of mount(8) and fstab. Returns false for an unknown word.
// Throws Failure (usage) for `remount`.
bool apply_mount_option(const std::string& word, MountOptions& options);

// Parses the -o arguments of a store's mount. Throws Failure (usage) for an unknown word and for
// `remount`.
MountOptions parse_mount_options(const std::vector<std::string>& texts);

// Lists the words that apply_mount_option() knows, for messages.
std::string known_mount_options();

}  // namespace cacheshim::cli
