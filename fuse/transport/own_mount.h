// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "fuse/transport/queue_drain.h"

// System calls on the daemon's own mount. No thread of the daemon may make one, because the daemon might then never
// exit:
//   1. The thread is killed while it waits for an answer that only the daemon could give.
//   2. The thread exists until the connection is aborted, that is, until the last descriptor of /dev/fuse is closed.
//   3. The daemon has that descriptor open as long as one of its threads exists. So the daemon never exits, and all
//      users of the mount hang.
//
// Each of these functions makes the call in a separate process without descriptors. When the daemon is killed, its
// descriptors are closed, the kernel aborts the connection, and the separate process ends too.
namespace cacheshim::own_mount {

// Calls statfs(2) on `core`, or on any core if that one is offline, so that the daemon receives a request from this
// core. Does not wait for the answer. Returns nullptr if the process cannot be created. The destructor of the result
// kills the process; if the daemon has already received the request, the destructor blocks until the daemon has
// answered it.
std::unique_ptr<QueueDrain::Probe> start_probe(const std::string& mount_point, int core);

// Calls umount2(2) with MNT_DETACH and waits for it. If this drops the last reference to the mount, the kernel writes
// dirty pages back, so the daemon must still answer requests.
void detach(const std::string& mount_point);

}  // namespace cacheshim::own_mount
