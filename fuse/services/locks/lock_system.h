// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "fuse/services/locks/lock_request.h"
#include "fuse/services/locks/open_descriptors.h"

namespace cacheshim {

// The functions with which the daemon takes and examines locks; replaced in tests. Functions that can fail return an
// errno value, or 0.
struct LockSystem {
  using Clock = std::chrono::steady_clock;

  // Sets a lock without waiting: flock(2), or F_OFD_SETLK of a range, on the owner's separate descriptor.
  std::function<int(int fd, const LockRequest& request)> set;
  // F_OFD_GETLK: sets `lock` to a conflicting lock of another owner; `lock.l_type` is F_UNLCK if
  // there is none.
  std::function<int(int fd, struct flock& lock)> find;
  // For the next four, see has_ended(), descriptors_of(), has_descriptor() and lock_call_arguments()
  // (open_descriptors.h).
  std::function<bool(pid_t process)> has_ended;
  std::function<std::vector<OpenDescriptor>(pid_t process, std::uint64_t shown_inode, int known)>
      descriptors;
  std::function<bool(pid_t process, const OpenDescriptor& descriptor)> has_descriptor;
  std::function<LockCallArguments(pid_t thread)> arguments;
  // Whether there may be a RELEASE that LockTable has not handled yet; true if unknown.
  std::function<bool()> is_releasing;
  std::function<Clock::time_point()> now;
  static LockSystem real();
};

}  // namespace cacheshim
