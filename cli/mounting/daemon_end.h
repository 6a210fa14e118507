// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>

#include "common/unique_fd.h"

namespace cacheshim::cli {

// The end of a mount's daemon. To be made before the mount is detached: the daemon takes its run
// directory away before it lets go of all the rest, and the next one may make that directory anew.
class DaemonEnd {
 public:
  // Without a run directory there is nothing to be waited for.
  explicit DaemonEnd(const std::string& run_dir);

  // Its process id; 0 if no process has the lock, or if /proc does not name its holder.
  pid_t holder() const { return holder_; }

  // Whether the daemon has ended; waits for it, at most `time`.
  bool wait(std::chrono::milliseconds time) const;

 private:
  UniqueFd lock_;  // its lock file, which it holds until its run directory has gone
  pid_t holder_ = 0;
  UniqueFd process_;  // a pidfd; empty where /proc does not show us the process
};

// The process that has the file locked by flock(2), as a table like /proc/locks tells it; 0: nobody
// there.
pid_t find_flock_holder(std::string_view table, dev_t device, ino_t inode);

}  // namespace cacheshim::cli
