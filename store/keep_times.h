// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include "store/sys.h"

namespace cacheshim {

// Puts a folder's times back: what we make in it for ourselves is no change of the job's.
class KeepTimes {
 public:
  explicit KeepTimes(int folder) : folder_(folder), st_(sys::stat_fd(folder)) {}
  ~KeepTimes() {
    if (!st_) return;
    const timespec times[2] = {st_->st_atim, st_->st_mtim};
    (void)sys::set_times(folder_, times);  // at worst a folder looks newer than it is
  }
  KeepTimes(const KeepTimes&) = delete;
  KeepTimes& operator=(const KeepTimes&) = delete;

 private:
  const int folder_;
  const Result<struct stat> st_;
};

}  // namespace cacheshim
