// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/lock_system.h"

#include <sys/file.h>

#include <cerrno>

#include "fuse/services/locks/lock_range.h"

namespace cacheshim {
namespace {

int flock_operation(short type) {
  if (type == F_UNLCK) return LOCK_UN;
  return (type == F_WRLCK ? LOCK_EX : LOCK_SH) | LOCK_NB;
}

int set_lock(int fd, const LockRequest& request) {
  if (request.is_record) {
    struct flock range = to_flock(request);
    return ::fcntl(fd, F_OFD_SETLK, &range) == 0 ? 0 : errno;
  }
  return ::flock(fd, flock_operation(request.type)) == 0 ? 0 : errno;
}

int find_lock(int fd, struct flock& lock) {
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 ? 0 : errno;
}

}  // namespace

LockSystem LockSystem::real() {
  return {set_lock,
          find_lock,
          cacheshim::has_ended,
          descriptors_of,
          cacheshim::has_descriptor,
          lock_call_arguments,
          [] { return true; },
          [] { return Clock::now(); }};
}

}  // namespace cacheshim
