// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

namespace cacheshim {

struct KernelLock {
  bool is_flock =
      false;  // else of fcntl; those of open file descriptions say of no process and are left out
  bool waits = false;  // for a lock of somebody else
  pid_t process = 0;
};

// The locks on a file, and who waits for one, as a table like /proc/locks tells it: of this machine and of pid
// namespaces that are seen from here.
std::vector<KernelLock> kernel_locks(std::string_view table, dev_t device, ino_t inode);

}  // namespace cacheshim
