// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

// The meaning of an application's open(2) flags for the backing file.
namespace cacheshim {

inline bool wants_write(int flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
}

// Returns the flags for opening the backing file. Omits O_APPEND, because the kernel sends the offset, and O_DIRECT,
// because the daemon's buffers are not aligned.
inline int backing_flags(int flags) { return flags & (O_ACCMODE | O_TRUNC); }

// Sets whether reads through this descriptor leave the access time unchanged. Does nothing if the daemon neither owns
// the file nor is root (EPERM).
inline void set_noatime(int fd, bool is_set) {
  const int flags = ::fcntl(fd, F_GETFL);
  (void)::fcntl(fd, F_SETFL, is_set ? flags | O_NOATIME : flags & ~O_NOATIME);
}

}  // namespace cacheshim
