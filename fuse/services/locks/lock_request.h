// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstdint>

namespace cacheshim {

class UserAccount;

// A lock request from a process: flock(2) on the whole file, or fcntl(2) on a range of bytes.
struct LockRequest {
  bool is_record = false;
  std::uint64_t owner = 0;   // record: the kernel's lock owner; flock: the handle
  std::uint64_t handle = 0;  // the handle through which the request is made
  pid_t process = 0;         // 0: outside the daemon's pid namespace
  short type = F_UNLCK;      // F_RDLCK, F_WRLCK or F_UNLCK
  off_t start = 0;           // in bytes; for record locks only
  off_t length = 0;          // as `start`; 0: to the end of the file, however far the file grows
  bool waits = false;
  bool reports_close =
      false;  // the kernel reports when a descriptor of the handle is closed (FLUSH)
  // Whether the file has another open handle for which the kernel does not report closes
  // (LockOwners::Owner::descriptors).
  bool has_silent_handles = false;
  pid_t thread = 0;               // the thread of `process` that is blocked in the request
  std::uint64_t shown_inode = 0;  // st_ino, as /proc shows it for the caller's descriptors
  UserAccount* account = nullptr;  // the caller's account, which is charged; null: no account is charged
};

// A lock request to answer. It is answered once, perhaps on a thread other than the one that made the request.
class LockReply {
 public:
  virtual ~LockReply() = default;
  // Called before the request starts to wait. The mutex of the file's queue is held, so no other thread can answer the
  // request during this call. Report an interrupt with LockTable::interrupt(ticket), during this call or later.
  virtual void wait(std::uint64_t ticket) = 0;
  virtual void answer(int error) = 0;  // 0: the lock is granted
};

}  // namespace cacheshim
