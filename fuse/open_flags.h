// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

// What the flags of an application's open(2) mean here.
namespace cacheshim {

inline bool wants_write(int flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
}

// The flags that the backing file needs. Not O_APPEND: the kernel gives the offset. Not O_DIRECT: the daemon's
// buffers are not aligned.
inline int backing_flags(int flags) { return flags & (O_ACCMODE | O_TRUNC); }

}  // namespace cacheshim
