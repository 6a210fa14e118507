// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

namespace cacheshim {

struct KernelLock {
  // True: an flock(2) lock. False: a record lock of a process (fcntl(2)). OFD locks are left out,
  // because the kernel names no process for them.
  bool is_flock = false;
  bool waits = false;  // waits for a lock that another process holds
  pid_t process = 0;
};

// Returns the locks on a file, and the requests that wait for a lock on it. `table` is the text of /proc/locks, which
// shows only this machine's locks whose owners are visible in the PID namespace of the /proc mount.
std::vector<KernelLock> kernel_locks(std::string_view table, dev_t device, ino_t inode);

}  // namespace cacheshim
