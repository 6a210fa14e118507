// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cacheshim::cli {

// The absolute path, without symlinks, of a folder that can be mounted on. A mount there whose daemon
// has died is taken away first. Throws Failure (unavailable) where it cannot be used.
std::string check_mount_point(const std::string& given);

}  // namespace cacheshim::cli
