// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace cacheshim {

// Returns true if the thread waits for the daemon's reply in a system call that resolves a path and then only requests
// the attributes of the object there: stat(2), access(2), chdir(2), and open(2) with neither O_CREAT nor O_PATH. The
// LOOKUP requests of mkdir(2), rename(2) and rmdir(2) are identical, but these calls must not see a name that does not
// exist.
//
// The thread must be the caller of an unanswered request. Returns false if /proc does not show the
// system call, since reading /proc/TID/syscall requires the right to trace the thread. Takes some
// 20 µs.
bool only_asks(pid_t thread);

// Returns true if the thread is in a system call that may complete an entry. Such a call, unless it is a rename between
// two directories, returns only after the entry that it completes is published. Returns false if /proc does not show
// the system call.
bool may_complete_entries(pid_t thread);

}  // namespace cacheshim
