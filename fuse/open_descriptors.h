// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

// What /proc tells of the descriptors that other processes have of files of the mount. Nothing here stats
// a file: that would be a request to ourselves.
namespace cacheshim {

// Whether a process has a file with this st_ino open; true where that is not known.
bool process_has_open(pid_t process, std::uint64_t shown_inode);

struct OpenDescriptor {
  int number = -1;
  std::uint64_t inode = 0;
  std::uint64_t mount = 0;
  friend bool operator==(const OpenDescriptor&, const OpenDescriptor&) = default;
};
// The descriptors that a process has of a file on a FUSE mount, by its st_ino; none where /proc does not
// tell (a process outside the daemon's pid namespace, Linux before 5.14).
std::vector<OpenDescriptor> descriptors_of(pid_t process, std::uint64_t shown_inode);
// Whether the process has the descriptor still: false when it, or the process, is gone.
bool has_descriptor(pid_t process, const OpenDescriptor& descriptor);

// Whose lock a thread that is blocked in fcntl(2) asks for: its process's, or an open file description's
// (F_OFD_SETLK). The request does not tell. Where /proc does not tell either (ptrace(2) is not allowed), unknown.
enum class LockCallKind { kUnknown, kOfProcess, kOfDescription };
LockCallKind lock_call_kind(pid_t thread);

}  // namespace cacheshim
