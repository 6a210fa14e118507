// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "common/result.h"
#include "common/unique_fd.h"

namespace cacheshim {

// Ending a FUSE connection: requests that wait for an answer, and all later ones, fail with ENOTCONN. The kernel itself
// does that when the last descriptor of the connection is closed. But a thread that is blocked in write(2) to /dev/fuse,
// because a client's call holds the lock of the directory that it invalidates, holds all descriptors of its process.

// Opens the control file of the mount with this device number in fusectl, which only root of the initial user namespace
// can mount; nobody else sees this instance of it. A later abort needs no privilege.
Result<UniqueFd> open_abort(dev_t device);
// `control`: from open_abort(). Async-signal-safe. Does nothing if the connection has ended.
Status abort_connection(int control);

// A process that ends the connection if this one dies while such a thread is blocked: by SIGKILL, for lack of memory, or
// by a crash. Otherwise calls of clients would wait for an answer forever. Not thread-safe.
class ConnectionGuard {
 public:
  // Starts the process. Call on the main thread: the death of the calling thread counts as that of the process.
  explicit ConnectionGuard(int control);
  ~ConnectionGuard();
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

 private:
  pid_t pid_ = -1;  // -1: there is none
};

}  // namespace cacheshim
