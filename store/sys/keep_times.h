// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim {

// The destructor restores a directory's times, so that files that the daemon creates or removes in
// the directory for itself do not count as the job's changes.
class KeepTimes {
 public:
  // Keeps the times of the directory `path` below the open directory `dir`, or of `dir` if `path`
  // is "". `dir` must stay open.
  explicit KeepTimes(int dir, std::string path = {})
      : dir_(dir), path_(std::move(path)), st_(sys::stat_at(dir_, path_)) {}
  ~KeepTimes() {
    if (!st_) return;
    const timespec times[2] = {st_->st_atim, st_->st_mtim};
    // If this fails, the directory only has a newer time than it should.
    (void)sys::set_times_at(dir_, path_, times);
  }
  KeepTimes(const KeepTimes&) = delete;
  KeepTimes& operator=(const KeepTimes&) = delete;
  const Result<struct stat>& before() const { return st_; }

 private:
  const int dir_;
  const std::string path_;
  const Result<struct stat> st_;
};

}  // namespace cacheshim
