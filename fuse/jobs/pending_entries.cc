// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/pending_entries.h"

namespace cacheshim {

void PendingEntries::postpone(const std::string& entry) {
  const MutexLock lock(mutex_);
  (void)postponed_.find_or_add(entry);
}

std::vector<std::string> PendingEntries::take_postponed() {
  const MutexLock lock(mutex_);
  std::vector<std::string> entries;
  for (const auto& [entry, nothing] : postponed_.take()) entries.push_back(entry);
  return entries;
}

void PendingEntries::note_built(const std::string& path) {
  const MutexLock lock(mutex_);
  (void)built_.find_or_add(path);
}

bool PendingEntries::has_built() const {
  const MutexLock lock(mutex_);
  return !built_.all().empty();
}

std::vector<std::string> PendingEntries::take_built(
    const std::function<bool(const std::string& path)>& is_theirs) {
  std::vector<std::string> taken;
  const MutexLock lock(mutex_);
  for (const auto& [path, nothing] : built_.all()) {
    if (is_theirs(path)) taken.push_back(path);
  }
  for (const std::string& path : taken) (void)built_.erase(path);
  return taken;
}

void PendingEntries::clear() {
  const MutexLock lock(mutex_);
  (void)postponed_.take();
  (void)built_.take();
}

}  // namespace cacheshim
