// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/mount_info.h"

namespace cacheshim::cli {

struct MountUser {
  pid_t pid;
  std::string name;        // as in /proc/PID/comm
  std::string how;  // "current directory", "open file", …; "running" from processes_of_this_namespace()
  bool is_client = false;  // uses the mount only for a pending request to the daemon
};

// Returns the processes that keep a mount busy, as far as /proc shows them to this user. Makes no
// request to the mount's daemon, which may hang.
std::vector<MountUser> find_mount_users(const MountEntry& mount);

// Returns one process for each other mount namespace that contains a mount of the same file system.
std::vector<MountUser> find_other_namespaces(const MountEntry& mount);

// Returns, for example, "python3 (pid 12, open file), bash (pid 9, current directory) and 3 more".
std::string describe_users(const std::vector<MountUser>& users);

// Returns the other processes in this process's mount namespace, whether they use a mount or not.
std::vector<MountUser> processes_of_this_namespace();

}  // namespace cacheshim::cli
