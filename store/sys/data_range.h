// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace cacheshim {

// A part [begin, end) of a file, in bytes, without holes as far as the file system reports them.
struct DataRange {
  off_t begin;
  off_t end;
};

// Returns the first range of data at or after the offset `at` in a file of `size` bytes; {size, size} if the rest is a
// hole. If the file system cannot report holes, returns the whole rest as data. Requires: at < size. The descriptor's
// offset is undefined afterwards. Thread-safe for different open file descriptions.
DataRange next_data(int fd, off_t at, off_t size);

}  // namespace cacheshim
