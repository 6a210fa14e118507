// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "common/result.h"
#include "common/unique_fd.h"

namespace cacheshim {

// When a FUSE connection is aborted, waiting requests fail with ECONNABORTED, and later ones with ENOTCONN. The kernel
// itself aborts a connection when the last descriptor of its /dev/fuse is closed. But a dying daemon's descriptors stay
// open while one of its threads is blocked in write(2) to /dev/fuse. A write that invalidates a name blocks while a
// client's call holds the inode lock of the name's directory.

// Mounts fusectl, visible to no other process, and opens the file `abort` of the FUSE mount with this device number.
// Only root of the initial user namespace can mount fusectl. abort_connection() needs no privilege.
Result<UniqueFd> open_abort(dev_t device);
// Aborts the connection. `control` is the descriptor that open_abort() returned. Async-signal-safe. Does nothing if the
// connection has ended.
Status abort_connection(int control);

// A process that aborts the connection when the daemon dies (by SIGKILL, for lack of memory, or by a crash). Without
// this process, clients' calls would wait for an answer forever if one of the daemon's threads is blocked in a write to
// /dev/fuse. Not thread-safe.
class ConnectionGuard {
 public:
  // Starts the process. Call on the main thread: the guard treats the death of the calling thread as the death of the
  // daemon.
  explicit ConnectionGuard(int control);
  ~ConnectionGuard();
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

 private:
  pid_t pid_ = -1;  // -1: there is none
};

}  // namespace cacheshim
