// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

namespace cacheshim {

// Whether every user may read an object of this mode, and enter it if it is a directory. False for objects that are
// neither files, directories nor symlinks.
inline bool is_open_to_all(mode_t mode) {
  if (S_ISLNK(mode)) return true;
  if (S_ISDIR(mode)) return (mode & 0555) == 0555;
  return S_ISREG(mode) && (mode & 0444) == 0444;
}

}  // namespace cacheshim
