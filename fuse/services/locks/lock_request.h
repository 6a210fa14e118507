// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstdint>

namespace cacheshim {

class UserAccount;

// A lock request of a caller: flock(2) of the whole file, or fcntl(2) of a range of bytes.
struct LockRequest {
  bool is_record = false;
  std::uint64_t owner = 0;   // record: the kernel's lock owner; flock: the handle
  std::uint64_t handle = 0;  // the handle through which the request is made
  pid_t process = 0;         // 0: outside the daemon's pid namespace
  short type = F_UNLCK;      // F_RDLCK, F_WRLCK or F_UNLCK
  off_t start = 0;           // in bytes; for record locks only
  off_t length = 0;          // as `start`; 0: to the end of the file, even as it grows
  bool waits = false;
  bool tells_close = false;  // the kernel reports when a descriptor of the handle is closed (FLUSH)
  // Whether the file has another open handle whose closes the kernel does not report: see
  // LockOwners::Owner::descriptors.
  bool others_close_unseen = false;
  pid_t thread = 0;               // the thread of `process` that is blocked in the request
  std::uint64_t shown_inode = 0;  // st_ino, as /proc shows it for the caller's descriptors
  UserAccount* account = nullptr;  // the caller's account, which is charged; null: nobody is charged
};

// A lock request that is answered once, possibly by a thread other than the one that made it.
class LockCall {
 public:
  virtual ~LockCall() = default;
  // Called before the request waits, with the mutex of the file's queue held, while no other thread can answer the
  // request. From this call on, report an interrupt with LockTable::interrupt(ticket), which may be called from within
  // this function.
  virtual void wait(std::uint64_t ticket) = 0;
  virtual void answer(int error) = 0;  // 0: the lock is granted
};

}  // namespace cacheshim
