// SPDX-License-Identifier: Apache-2.0
#include "store/locks/hidden_locks.h"

#include "store/sys/paths.h"

namespace cacheshim {

void HiddenLocks::hide(const std::string& path) {
  const MutexLock lock(mutex_);
  paths_.insert(path);
  has_any_ = true;
}

void HiddenLocks::show(const std::string& path) {
  const MutexLock lock(mutex_);
  paths_.erase(path);
  has_any_ = !paths_.empty();
}

bool HiddenLocks::contains(const std::string& path) const {
  if (!has_any_) return false;
  const MutexLock lock(mutex_);
  return paths_.contains(path);
}

std::vector<std::string> HiddenLocks::directories() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> directories;
  for (const std::string& path : paths_) directories.emplace_back(parent_path(path));
  return directories;
}

}  // namespace cacheshim
