// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/pending_entries.h"

namespace cacheshim {

void PendingEntries::postpone(const std::string& entry) {
  const MutexLock lock(mutex_);
  postponed_.insert(entry);
}

std::vector<std::string> PendingEntries::take_postponed() {
  const MutexLock lock(mutex_);
  std::vector<std::string> entries(postponed_.begin(), postponed_.end());
  postponed_.clear();
  return entries;
}

void PendingEntries::note_built(const std::string& path) {
  const MutexLock lock(mutex_);
  built_.insert(path);
}

bool PendingEntries::has_built() const {
  const MutexLock lock(mutex_);
  return !built_.empty();
}

std::vector<std::string> PendingEntries::take_built(
    const std::function<bool(const std::string& path)>& is_theirs) {
  std::vector<std::string> taken;
  const MutexLock lock(mutex_);
  std::erase_if(built_, [&](const std::string& path) {
    if (!is_theirs(path)) return false;
    taken.push_back(path);
    return true;
  });
  return taken;
}

void PendingEntries::clear() {
  const MutexLock lock(mutex_);
  postponed_.clear();
  built_.clear();
}

}  // namespace cacheshim
