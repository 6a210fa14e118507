// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace cacheshim {

// Returns true if the thread waits for the daemon's reply in a system call that only reads the object at a path, and
// sends another request after the LOOKUP: stat(2), access(2), chdir(2), and open(2) with neither O_CREAT nor O_PATH.
// mkdir(2), rename(2) and rmdir(2) send the same LOOKUP requests, but these calls must not see a name that does not
// exist.
//
// The thread must be waiting for the answer to a request. Returns false if /proc does not show the system call: reading
// /proc/TID/syscall requires permission to trace the thread. Takes about 20 µs.
bool can_wait_after_lookup(pid_t thread);

// Returns true if the thread is in a system call that may complete an entry. The call returns only after the entry that
// it completes is published, unless the call is a rename between two directories. Returns false if /proc does not show
// the system call.
bool may_complete_entries(pid_t thread);

}  // namespace cacheshim
