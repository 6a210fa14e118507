// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cacheshim::cli {

// Moves this process into a mount namespace of its own, in which `mount_point` is a directory to
// mount on, and everything else is as it was; without the privilege for that, into a user namespace
// as well, with the same uid and gid. The current directory is kept. Mounts made by the system
// later are seen inside, never the other way round.
// Throws Failure (unavailable) where that cannot be. Call from a process with one thread.
void enter_private_namespace(const std::string& mount_point);

// Covers the directory above `run_dir`, so that the run directory of this namespace's mount is not
// that of the system's mount at the same path. False where there can be none.
bool cover_run_dir(const std::string& run_dir);

}  // namespace cacheshim::cli
