// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cacheshim::cli {

// Moves this process into a separate mount namespace, in which `mount_point` is a directory that can be mounted on, and
// everything else is unchanged. If the process lacks the privilege for this, it also enters a user namespace with the
// same uid and gid. Keeps the current directory. Mounts made outside later also appear in the new namespace; mounts
// made inside do not appear outside. Throws Failure (unavailable) if this is impossible, for example if only later
// components of the mount point are missing. Call from a process with one thread.
void enter_private_namespace(const std::string& mount_point);

// Covers the directory above `run_dir` with a tmpfs, so that this namespace's mount does not use the run directory of
// the system's mount at the same path. Returns false if `run_dir` is empty or the directory cannot be covered.
bool cover_run_dir(const std::string& run_dir);

}  // namespace cacheshim::cli
