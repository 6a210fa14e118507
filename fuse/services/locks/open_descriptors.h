// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

// Finds, in /proc, the descriptors through which other processes have files of the mount open. Never calls stat on
// these files, because stat would send a request to this daemon.
namespace cacheshim {

// Whether a process has exited; false if unknown. A zombie has exited: it has no open files.
bool has_ended(pid_t process);

struct OpenDescriptor {
  int number = -1;
  std::uint64_t inode = 0;
  std::uint64_t mount = 0;
  friend bool operator==(const OpenDescriptor&, const OpenDescriptor&) = default;
};
inline constexpr std::size_t kMostSearched = 256;
// Returns the open descriptors of `process` whose file has the inode number `shown_inode`. If there are several,
// returns only those on FUSE mounts; returns a single match whatever its file system. If the process has more than
// kMostSearched descriptors, checks only the descriptor `known`. Returns none if /proc does not show the descriptors:
// the process is outside the daemon's PID namespace, or Linux is older than 5.14.
std::vector<OpenDescriptor> descriptors_of(pid_t process, std::uint64_t shown_inode, int known);
// Whether the process still has the descriptor. Returns false if the descriptor or the process no longer exists.
bool has_descriptor(pid_t process, const OpenDescriptor& descriptor);

// Arguments of the fcntl(2) call in which a thread is blocked; the kernel's lock request does not contain them. `kind`:
// whether the lock's owner will be the thread's process or an open file description (F_OFD_SETLK); kUnknown if /proc
// does not show the arguments, for example because the daemon may not trace the thread.
enum class LockCallKind { kUnknown, kOfProcess, kOfDescription };
struct LockCallArguments {
  LockCallKind kind = LockCallKind::kUnknown;
  int descriptor = -1;
};
LockCallArguments lock_call_arguments(pid_t thread);

}  // namespace cacheshim
