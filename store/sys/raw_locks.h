// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string_view>

namespace cacheshim {

// Whether a process other than this one has the file locked or waits for it, by flock or fcntl, as
// /proc/locks tells it: of this machine and of pid namespaces that are seen from here. Locks of open file
// descriptions (F_OFD_SETLK) say of no process and are left out. Thread-safe.
bool is_locked_elsewhere(dev_t device, ino_t inode);
// The same of a given table, for tests.
bool is_locked_elsewhere(std::string_view table, dev_t device, ino_t inode, pid_t self);

}  // namespace cacheshim
