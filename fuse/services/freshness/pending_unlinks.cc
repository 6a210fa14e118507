// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/pending_unlinks.h"

#include <set>
#include <utility>

namespace cacheshim {

void PendingUnlinks::begin(NodeId file, NodeId directory, std::string name) {
  const MutexLock lock(mutex_);
  files_[file] = {directory, std::move(name), ++last_number_};
  count_ = files_.size();
  if (files_.size() > kMost) settle_soon();
}

void PendingUnlinks::end(NodeId file) {
  if (count_ == 0) return;
  const MutexLock lock(mutex_);
  files_.erase(file);
  count_ = files_.size();
}

bool PendingUnlinks::has(NodeId file) {
  if (count_ == 0) return false;
  const MutexLock lock(mutex_);
  if (!files_.contains(file)) return false;
  settle_soon();
  return true;
}

void PendingUnlinks::settle_soon() {
  if (is_settling_soon_) return;
  is_settling_soon_ = true;
  tasks_.post([this] { settle(); });
}

void PendingUnlinks::settle() {
  std::unordered_map<NodeId, Removal> files;
  {
    const MutexLock lock(mutex_);
    is_settling_soon_ = false;
    files = files_;
  }
  std::set<std::pair<NodeId, std::string_view>> names;
  for (const auto& [file, removal] : files) {
    const bool is_new = names.emplace(removal.directory, removal.name).second;
    if (is_new) invalidate_(removal.directory, removal.name);
  }
  const MutexLock lock(mutex_);
  for (const auto& [file, removal] : files) {
    const auto found = files_.find(file);
    if (found != files_.end() && found->second.number == removal.number) files_.erase(found);
  }
  count_ = files_.size();
}

}  // namespace cacheshim
