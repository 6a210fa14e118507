// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "fuse/transport/queue_drain.h"

// Calls into the daemon's own mount. A thread of the daemon must never make one, because the daemon could then never
// exit:
//   1. The thread is killed while it waits for an answer that only the daemon could give.
//   2. The thread stays until the connection is aborted, which needs the last descriptor of /dev/fuse to be closed.
//   3. The thread's own process holds that descriptor as long as the thread exists. So the process is never
//      reaped, and all users of the mount hang with it.
//
// Each of these functions makes the call in a separate process without descriptors. When the daemon
// is killed, its descriptors are closed, the kernel aborts the connection, and that process ends
// too.
namespace cacheshim::own_mount {

// Calls statfs(2) on a core, so that the daemon gets a request there; on any core if that one is offline. Returns
// nullptr if it cannot create the process. If the daemon has already received the request, the destructor of the result
// blocks until the daemon has answered it.
std::unique_ptr<QueueDrain::Question> ask(const std::string& mount_point, int core);

// Calls umount2(2) with MNT_DETACH and waits for it. If this drops the last reference to the mount, the kernel writes
// dirty pages back, so the daemon must still answer requests.
void detach(const std::string& mount_point);

}  // namespace cacheshim::own_mount
