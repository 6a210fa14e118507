// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

// What /proc says about the descriptors that other processes have of files of the mount. Nothing here calls
// stat on a file of the mount: that would be a request to the daemon itself.
namespace cacheshim {

// Whether a process has a file with this st_ino open; true where that is not known.
bool process_has_open(pid_t process, std::uint64_t shown_inode);

struct OpenDescriptor {
  int number = -1;
  std::uint64_t inode = 0;
  std::uint64_t mount = 0;
  friend bool operator==(const OpenDescriptor&, const OpenDescriptor&) = default;
};
// The descriptors that a process has of a file on a FUSE mount, by its st_ino; none if /proc does not show
// them (a process outside the daemon's pid namespace, Linux before 5.14).
std::vector<OpenDescriptor> descriptors_of(pid_t process, std::uint64_t shown_inode);
// Whether the process still has the descriptor: false when the descriptor, or the process, is gone.
bool has_descriptor(pid_t process, const OpenDescriptor& descriptor);

// Which owner a thread that is blocked in fcntl(2) requests a lock for: its process, or an open file
// description (F_OFD_SETLK). The request does not say. If /proc does not say either (ptrace(2) is not allowed),
// unknown.
enum class LockCallKind { kUnknown, kOfProcess, kOfDescription };
LockCallKind lock_call_kind(pid_t thread);

}  // namespace cacheshim
