// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string_view>

#include "common/job_id.h"

// Decides which paths from its environment a process may use. sudo may pass another user's environment to a root
// process (common/root_process.h), which must not trust it. So a root process uses no directory, mount or file that
// another user can replace. A process of any other user uses the paths that its environment names.
//
// uid 0 of a user namespace with one user counts as that user. Async-signal-safe; leaves errno
// unchanged.
namespace cacheshim {

// Whether the effective or the real user of this process is root.
bool is_root_process();

// Whether this process may use the mount at `path` that `owner` has mounted (MountState::owner).
// The mount at the default mount point is always allowed: no environment variable has chosen this
// path.
bool may_use_mount(std::string_view path, uid_t owner);

// Returns XDG_RUNTIME_DIR, which contains the run directories of the user's own daemons. Returns an empty text for
// root, whose daemons never use it. Also returns an empty text if the directory does not belong to this user, or if
// other users can write to it.
std::string_view user_run_base(const Environment& environment);

// Whether only root and this user can replace the object at `path` or a directory above it. The path
// must be absolute, and its directories must not be symlinks. Each directory must belong to root or
// this user; if other users can write to it, it must have the sticky bit. Does not check the last
// component, which need not exist.
bool is_path_of_root(const char* path);

}  // namespace cacheshim
