// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cacheshim::cli {

// Returns the absolute path, without symlinks, of a directory that can be mounted on. First
// unmounts a mount there whose daemon is dead. Throws Failure (unavailable) if the mount point
// cannot be used, or if it is not empty and `may_be_nonempty` is not set.
std::string check_mount_point(const std::string& given, bool may_be_nonempty);

// Returns an error message if `path`, an option's value, is empty, and otherwise ""; for CLI11's
// check().
std::string refuse_empty_path(const std::string& path);

// Throws Failure (usage) if `directory`, which the daemon will serve or write to, is the mount
// point, is below it or contains it: the daemon would wait for itself, or users could not reach the
// directory. `what` names the directory in the message. Requires: both paths come from
// resolve_path().
void check_apart(const std::string& mount_point, std::string_view what,
                 const std::string& directory);

}  // namespace cacheshim::cli
