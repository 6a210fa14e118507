// SPDX-License-Identifier: Apache-2.0
#include "store/sys/data_range.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace cacheshim {

DataRange next_data(int fd, off_t at, off_t size) {
  const off_t begin = ::lseek(fd, at, SEEK_DATA);
  if (begin == -1 && errno == ENXIO) return {size, size};  // also if the file has shrunk
  if (begin == -1) return {at, size};
  if (begin >= size) return {size, size};
  const off_t end = ::lseek(fd, begin, SEEK_HOLE);
  return {begin, end == -1 ? size : std::min(size, end)};
}

}  // namespace cacheshim
