// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace cacheshim {

// Whether the system call in which a thread waits for the daemon's reply only checks where a path
// leads, and finally requests the attributes of that object: stat(2), access(2), chdir(2), and
// open(2) of an existing object. A LOOKUP request is the same for mkdir(2), rename(2) and rmdir(2),
// which must not see a name that does not exist.
//
// The thread must be the caller of an unanswered request. Returns false if /proc does not show it,
// since reading /proc/TID/syscall requires the right to trace the thread. Takes some 20 µs.
bool only_asks(pid_t thread);

// Whether a thread is in a system call that may complete an entry, and that returns when the entry
// is published. Returns false if /proc does not show it.
bool may_complete_entries(pid_t thread);

}  // namespace cacheshim
