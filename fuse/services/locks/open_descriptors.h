// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

// What /proc says about the descriptors that other processes have of files of the mount. Nothing here calls
// stat on a file of the mount: that would be a request to the daemon itself.
namespace cacheshim {

// Whether a process has ended; false where that is not known. A zombie has ended: it has nothing open.
bool has_ended(pid_t process);

struct OpenDescriptor {
  int number = -1;
  std::uint64_t inode = 0;
  std::uint64_t mount = 0;
  friend bool operator==(const OpenDescriptor&, const OpenDescriptor&) = default;
};
// The descriptors that a process has of a file on a FUSE mount, by its st_ino. Of a process with more than
// kMostSearched descriptors of any files the one numbered `known` alone. None if /proc does not show them (a process
// outside the daemon's pid namespace, Linux before 5.14).
inline constexpr std::size_t kMostSearched = 256;
std::vector<OpenDescriptor> descriptors_of(pid_t process, std::uint64_t shown_inode, int known);
// Whether the process still has the descriptor: false when the descriptor, or the process, is gone.
bool has_descriptor(pid_t process, const OpenDescriptor& descriptor);

// What a thread that is blocked in fcntl(2) asks for, which the request does not say: the owner of the lock, its
// process or an open file description (F_OFD_SETLK), and the descriptor. Unknown if /proc does not say either
// (ptrace(2) is not allowed).
enum class LockCallKind { kUnknown, kOfProcess, kOfDescription };
struct LockCallArguments {
  LockCallKind kind = LockCallKind::kUnknown;
  int descriptor = -1;
};
LockCallArguments lock_call_arguments(pid_t thread);

}  // namespace cacheshim
