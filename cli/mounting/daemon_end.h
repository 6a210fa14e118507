// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>

#include "common/unique_fd.h"

namespace cacheshim::cli {

// Waits for the end of a mount's daemon. Construct it before the mount is detached: the daemon
// removes its run directory before it releases everything else, and the next daemon may then create
// that directory again.
class DaemonEnd {
 public:
  // If `run_dir` is empty or does not exist, wait() returns immediately.
  explicit DaemonEnd(const std::string& run_dir);

  // Returns the daemon's process id; 0 if no process has the lock, or if /proc does not show its
  // holder.
  pid_t holder() const { return holder_; }

  // Waits at most `time` for the daemon to exit. Returns true if it has exited, or if it has released
  // everything although the kernel still blocks one of its threads (LateOwners). If /proc does not
  // show the daemon, waits the whole `time`, and only the next call finds that the daemon has exited.
  bool wait(std::chrono::milliseconds time) const;

 private:
  bool has_released_all() const;

  UniqueFd lock_;  // the daemon's lock file; the daemon removes its run directory before it releases the lock
  pid_t holder_ = 0;
  UniqueFd process_;  // a pidfd; empty if /proc does not show the process
};

// Returns the process that holds the flock(2) on the file, from a table such as /proc/locks; 0 if
// no process holds it.
pid_t find_flock_holder(std::string_view table, dev_t device, ino_t inode);

}  // namespace cacheshim::cli
