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
  std::string how;         // "current directory", "open file", …
  bool is_client = false;  // has nothing of it but a request to its daemon
};

// The processes that keep a mount busy, as far as /proc lets this user see. Never asks the file
// system itself, so that it works on a mount whose daemon hangs.
std::vector<MountUser> find_mount_users(const MountEntry& mount);

// The processes of other mount namespaces that see the same file system, one for each namespace.
std::vector<MountUser> find_other_namespaces(const MountEntry& mount);

// "python3 (pid 12, open file), bash (pid 9, current directory) and 3 more"
std::string describe_users(const std::vector<MountUser>& users);

// The processes whose mount namespace is this process's own, without this process.
std::vector<pid_t> processes_of_this_namespace();

}  // namespace cacheshim::cli
