// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cacheshim::cli {

// The absolute path, without symlinks, of a folder that can be mounted on. A mount there whose daemon
// has died is taken away first. Throws Failure (unavailable) where it cannot be used, also where it holds
// something and `may_be_nonempty` is not set.
std::string check_mount_point(const std::string& given, bool may_be_nonempty);

// For the value of an option that is a path: what is wrong with it, as CLI11 asks for it.
std::string refuse_empty_path(const std::string& path);

// Throws Failure (usage) if `directory`, which the daemon is to serve or to write to, is the mount point,
// lies in it or holds it: the daemon would wait for itself, or users could not reach the directory.
// `what` is what a message calls the directory. Both paths are as resolve_path() returns them.
void check_apart(const std::string& mount_point, std::string_view what,
                 const std::string& directory);

}  // namespace cacheshim::cli
