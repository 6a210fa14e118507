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

// The functions by which locks are taken and examined; replaced in tests. Errors are errno values, 0
// for none.
struct LockSystem {
  using Clock = std::chrono::steady_clock;

  // Sets a lock without waiting: flock(2), or F_OFD_SETLK of a range, on the owner's own
  // descriptor.
  std::function<int(int fd, const LockRequest& request)> set;
  // F_OFD_GETLK: sets `lock` to a conflicting lock of another owner; `lock.l_type` is F_UNLCK if
  // there is none.
  std::function<int(int fd, struct flock& lock)> find;
  // The next four have the contracts of has_ended(), descriptors_of(), has_descriptor() and lock_call_arguments()
  // (open_descriptors.h).
  std::function<bool(pid_t process)> has_ended;
  std::function<std::vector<OpenDescriptor>(pid_t process, std::uint64_t shown_inode, int known)>
      descriptors;
  std::function<bool(pid_t process, const OpenDescriptor& descriptor)> has_descriptor;
  std::function<LockCallArguments(pid_t thread)> arguments;
  // Whether a RELEASE that LockTable has not received may be in progress; true if unknown.
  std::function<bool()> is_releasing;
  std::function<Clock::time_point()> now;
  static LockSystem real();
};

}  // namespace cacheshim
