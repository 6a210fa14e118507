// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace cacheshim {

// Whether the system call in which a thread waits for our answer only asks what a path leads to, and in the end asks
// for the attributes of what it has found: stat(2), access(2), chdir(2), and open(2) of what is there. A LOOKUP
// request is the same for mkdir(2), rename(2) and rmdir(2): these must not be shown what is not there.
//
// The thread must be the caller of a request that is not answered yet. Returns false where /proc does not tell,
// since reading /proc/TID/syscall takes the right to trace the thread. Takes some 20 µs.
bool only_asks(pid_t thread);

// Whether a thread is in a system call that may complete an entry, which returns when the entry is published. Returns
// false where /proc does not tell.
bool may_complete_entries(pid_t thread);

}  // namespace cacheshim
