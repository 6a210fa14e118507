// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/publishing/underway.h"

#include <utility>

#include "store/sys/paths.h"

namespace cacheshim {

Underway::Token Underway::begin(Job& job, std::string entry, Waiters waiters) {
  const MutexLock lock(mutex_);
  return entries_.insert(entries_.end(), {&job, std::move(entry), std::move(waiters)});
}

std::vector<Job*> Underway::publishers(std::string_view entry) const {
  std::vector<Job*> jobs;
  const MutexLock lock(mutex_);
  for (const Entry& each : entries_) {
    if (each.path == entry) jobs.push_back(each.job);
  }
  return jobs;
}

bool Underway::join(const Job& job, std::string_view path, const std::vector<NodeId>& held,
                    const std::function<void()>& answer) {
  const MutexLock lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.job != &job || !is_at_or_below(path, entry.path)) continue;
    entry.waiters.held.insert(entry.waiters.held.end(), held.begin(), held.end());
    entry.waiters.answers.push_back(answer);
    return true;
  }
  return false;
}

Underway::Waiters Underway::end(Token token) {
  const MutexLock lock(mutex_);
  Waiters waiters = std::move(token->waiters);
  entries_.erase(token);
  return waiters;
}

}  // namespace cacheshim
