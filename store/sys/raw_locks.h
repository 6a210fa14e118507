// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string_view>

namespace cacheshim {

// Whether, according to /proc/locks, another process holds or waits for an flock(2) or fcntl(2) lock
// on the file. /proc/locks shows only locks of this machine and of visible PID namespaces.
// Ignores OFD locks, because the kernel names no process for them. Returns false if /proc/locks
// cannot be read. Thread-safe.
bool is_locked_elsewhere(dev_t device, ino_t inode);
// As above, for the text `table` of /proc/locks; for tests.
bool is_locked_elsewhere(std::string_view table, dev_t device, ino_t inode, pid_t self);

}  // namespace cacheshim
