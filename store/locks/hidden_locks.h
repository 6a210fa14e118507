// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "store/threads/mutex.h"

namespace cacheshim {

// The lock files of the base that one job's view does not show, because the job has removed them.
// The files stay in the base. Thread-safe.
class HiddenLocks {
 public:
  // Hides the file until it is created again or shown.
  void hide(const std::string& path);
  void show(const std::string& path);
  bool has_any() const { return has_any_; }
  bool contains(const std::string& path) const;
  // Returns the directory of each hidden file.
  std::vector<std::string> directories() const;

 private:
  std::atomic<bool> has_any_{false};  // has_any() reads it without the mutex
  mutable Mutex mutex_;
  std::set<std::string> paths_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
