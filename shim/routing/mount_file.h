// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

#include "common/result.h"
#include "shim/routing/mount_table.h"
#include "shim/routing/routed_path.h"

namespace cacheshim {

// Returns the state of the mount at `path` according to mountinfo; kForbidden if may_use_mount() does not allow the
// mount. Errors: as open(2) and read(2).
Result<MountState> read_mount_state(std::string_view path);

// As read_mount_state(), but calls statx(2) for the mount's root, without a request to the daemon.
// This is faster: mountinfo takes 3 to 4 µs per mount, and a container host has hundreds of mounts.
// Recognizes only whole mounts, and only on kernels that report mount roots (Linux 5.8); otherwise
// returns nothing. Does not check may_use_mount().
std::optional<MountState> stat_mount_root(std::string_view path);

// As stat_mount_root(), but also checks that the mount belongs to the daemon whose state file is in
// `run_directory`, and that this daemon is alive. Requires: only root or this user can write to
// `run_directory`.
std::optional<MountState> probe_mount(std::string_view path, std::string_view run_directory);

// Writes the path of the run directory of the mount at `path` to `out`. Returns the length of the
// written path, or 0 if it does not fit.
std::size_t run_directory_of(std::string_view path, std::string_view run_base, PathBuffer& out);

// Returns the user to whom the job's view belongs: the owner of the view's counters file. Returns
// nothing if there is no such file, or if it still belongs to the daemon because no user has used
// the view.
std::optional<uid_t> owner_of_view(std::string_view run_directory, std::string_view job);

// Reads a file that has fewer than `capacity` bytes; returns their number. Errors: EFBIG for a larger file; otherwise
// as open(2) and read(2).
Result<std::size_t> read_file(const char* path, char* out, std::size_t capacity);

}  // namespace cacheshim
