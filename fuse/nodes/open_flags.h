// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

// The meaning of an application's open(2) flags for the backing file.
namespace cacheshim {

inline bool wants_write(int flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
}

// The flags that the backing file needs. Not O_APPEND: the kernel sends the offset. Not O_DIRECT:
// the daemon's buffers are not aligned.
inline int backing_flags(int flags) { return flags & (O_ACCMODE | O_TRUNC); }

// Sets whether reads through this descriptor leave the access time unchanged. Does nothing if the daemon neither owns
// the file nor is root.
inline void set_noatime(int fd, bool is_set) {
  const int flags = ::fcntl(fd, F_GETFL);
  // EPERM means that the daemon neither owns the file nor is root.
  (void)::fcntl(fd, F_SETFL, is_set ? flags | O_NOATIME : flags & ~O_NOATIME);
}

}  // namespace cacheshim
