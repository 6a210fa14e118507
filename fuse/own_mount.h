// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Calls into our own mount. A thread of the daemon must never make one: killed while it waits for an answer
// that only the daemon could give, it stays until the connection is aborted. That takes the last descriptor
// of /dev/fuse, which the thread's own process holds as long as the thread is there: so it is never reaped,
// and all who use the mount hang with it.
//
// Each of these makes the call in a process of its own that has no descriptors, and waits for it. When the
// daemon is killed, its descriptors go, the kernel aborts the connection, and that process ends too.
namespace cacheshim::own_mount {

// statfs(2), made on `core` (-1: anywhere), so that the daemon is sent a request. Returns whether it was
// answered without an error.
bool ask(const std::string& mount_point, int core);
// umount2(2) with MNT_DETACH. The last reference writes back what is dirty, which takes answers.
void detach(const std::string& mount_point);

}  // namespace cacheshim::own_mount
