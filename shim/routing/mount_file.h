// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "common/result.h"
#include "shim/routing/mount_table.h"
#include "shim/routing/routed_path.h"

namespace cacheshim {

// What mountinfo says of `path`; errors: from open and read.
Result<MountState> read_mount_state(std::string_view path);

// The same for a whole mount, by a look at the root of what is mounted, which asks the daemon
// nothing (of a kernel that knows mount roots). mountinfo takes 3 to 4 µs for every mount that
// there is, and a container host has hundreds. Empty where that is not certain.
std::optional<MountState> look_at_root(std::string_view path);

// The same for the mount of the daemon that has left its record in `run_folder`.
std::optional<MountState> look_at_mount(std::string_view path, std::string_view run_folder);

// Writes the path of the run directory of the mount at `path`; returns its length, or 0 where it
// does not fit.
std::size_t run_directory_of(std::string_view path, std::string_view run_base, PathBuffer& out);

// Reads at most `capacity` bytes of a file; returns how many. Errors: EFBIG where it has more.
Result<std::size_t> read_file(const char* path, char* out, std::size_t capacity);

}  // namespace cacheshim
