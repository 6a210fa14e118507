// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cacheshim::cli {

// The absolute path, without symlinks, of a directory that can be mounted on. A mount there whose
// daemon has died is taken away first. Throws Failure (unavailable) if the mount point cannot be
// used, or if it is not empty and `may_be_nonempty` is not set.
std::string check_mount_point(const std::string& given, bool may_be_nonempty);

// Why the value of an option is no valid path, for CLI11's check().
std::string refuse_empty_path(const std::string& path);

// Throws Failure (usage) if `directory`, which the daemon is to serve or to write to, is the mount
// point, lies in it or contains it. Otherwise the daemon would wait for itself, or users could not
// reach the directory. `what` is the message's name for the directory. Both paths are as
// resolve_path() returns them.
void check_apart(const std::string& mount_point, std::string_view what,
                 const std::string& directory);

}  // namespace cacheshim::cli
