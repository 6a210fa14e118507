// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/pending_unlinks.h"

#include <map>
#include <utility>

namespace cacheshim {

void PendingUnlinks::begin(NodeId file, Notification name) {
  std::vector<NodeId> all;
  {
    const MutexLock lock(mutex_);
    if (files_.size() >= kMostWhileDelayed && !files_.contains(file)) return;
    files_[file] = {std::move(name), ++last_number_};
    unsettled_.insert(file);
    count_ = files_.size();
    if (files_.size() > kMost) all.assign(unsettled_.begin(), unsettled_.end());
  }
  settle(all);
}

void PendingUnlinks::end(NodeId file) {
  if (count_ == 0) return;
  const MutexLock lock(mutex_);
  files_.erase(file);
  unsettled_.erase(file);
  count_ = files_.size();
}

bool PendingUnlinks::has(NodeId file) {
  if (count_ == 0) return false;
  {
    const MutexLock lock(mutex_);
    if (!files_.contains(file)) return false;
  }
  settle({file});
  return true;
}

// Sends an invalidation for each of `files` that has no pending one (unsettled_).
void PendingUnlinks::settle(const std::vector<NodeId>& files) {
  std::map<Notification, std::vector<Settling>> names;
  {
    const MutexLock lock(mutex_);
    for (const NodeId file : files) {
      if (unsettled_.erase(file) == 0) continue;
      const Removal& removal = files_.at(file);
      names[removal.name].push_back({file, removal.number});
    }
  }
  for (auto& [name, removals] : names) {
    invalidate_(name, [this, removals = std::move(removals)](bool is_released) {
      settled(removals, is_released);
    });
  }
}

void PendingUnlinks::settled(const std::vector<Settling>& removals, bool is_released) {
  const MutexLock lock(mutex_);
  for (const Settling& removal : removals) {
    const auto found = files_.find(removal.file);
    if (found == files_.end() || found->second.number != removal.number) continue;
    if (is_released || files_.size() > kMost) {
      files_.erase(found);
    } else {
      unsettled_.insert(removal.file);
    }
  }
  count_ = files_.size();
}

}  // namespace cacheshim
