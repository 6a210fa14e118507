// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

namespace cacheshim {

struct KernelLock {
  bool is_flock =
      // Otherwise fcntl. The kernel names no process for locks of open file descriptions, so they
      // are left out.
      false;
  bool waits = false;  // waits for a lock that another process holds
  pid_t process = 0;
};

// Returns the locks on a file, and the requests that wait for one, from a table such as
// /proc/locks, which shows those of this machine and of visible PID namespaces.
std::vector<KernelLock> kernel_locks(std::string_view table, dev_t device, ino_t inode);

}  // namespace cacheshim
