// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cacheshim::cli {

// The MS_* flags for the words of -o, each a single option ("ro"), as fstab has them.
// Throws Failure (usage) for one that is not known.
unsigned long parse_mount_options(const std::vector<std::string>& options);

}  // namespace cacheshim::cli
