// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim {

// Puts a folder's times back: what we make in it for ourselves is no change of the job's.
class KeepTimes {
 public:
  // `path`: of the folder, from the open folder `dir`; without it that one itself.
  explicit KeepTimes(int dir, std::string path = {})
      : dir_(dir), path_(std::move(path)), st_(sys::stat_at(dir_, path_)) {}
  ~KeepTimes() {
    if (!st_) return;
    const timespec times[2] = {st_->st_atim, st_->st_mtim};
    (void)sys::set_times_at(dir_, path_, times);  // at worst a folder looks newer than it is
  }
  KeepTimes(const KeepTimes&) = delete;
  KeepTimes& operator=(const KeepTimes&) = delete;

 private:
  const int dir_;
  const std::string path_;
  const Result<struct stat> st_;
};

}  // namespace cacheshim
