// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "common/result.h"
#include "common/unique_fd.h"

namespace cacheshim {

// Aborting a FUSE connection makes the requests that wait for an answer fail with ECONNABORTED, and all later ones with
// ENOTCONN. The kernel itself aborts the connection when its last descriptor is closed. But a dying daemon's
// descriptors stay open while one of its threads is blocked in write(2) to /dev/fuse. The write blocks while a client's
// call holds the inode lock of the directory that the write invalidates.

// Mounts fusectl, visible to no other process, and opens the control file of the mount with this device number. Only
// root of the initial user namespace can mount fusectl. A later abort needs no privilege.
Result<UniqueFd> open_abort(dev_t device);
// `control`: from open_abort(). Async-signal-safe. Does nothing if the connection has ended.
Status abort_connection(int control);

// A process that aborts the connection if the daemon dies (by SIGKILL, for lack of memory, or by a crash) while one of
// its threads is blocked in a write to /dev/fuse. Otherwise clients' calls would wait for an answer forever. Not
// thread-safe.
class ConnectionGuard {
 public:
  // Starts the process. Call on the main thread: the guard takes the death of the calling thread for the death of the
  // daemon.
  explicit ConnectionGuard(int control);
  ~ConnectionGuard();
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

 private:
  pid_t pid_ = -1;  // -1: there is none
};

}  // namespace cacheshim
