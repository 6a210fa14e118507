// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/publishing/underway.h"

#include <utility>

#include "fuse/jobs/job.h"
#include "store/sys/paths.h"

namespace cacheshim {

std::shared_ptr<Underway::Publication> Underway::begin(Job& job, std::string entry,
                                                       Waiters waiters) {
  const MutexLock lock(mutex_);
  const auto at = entries_.insert(entries_.end(), {job.shared_from_this(), std::move(entry), std::move(waiters)});
  return std::make_shared<Publication>(*this, at);
}

Underway::Waiters Underway::Publication::end() {
  if (!at_) return {};
  const auto at = *std::exchange(at_, std::nullopt);
  const MutexLock lock(underway_.mutex_);
  Waiters waiters = std::move(at->waiters);
  underway_.entries_.erase(at);
  return waiters;
}

std::vector<std::shared_ptr<Job>> Underway::publishers(std::string_view entry) const {
  std::vector<std::shared_ptr<Job>> jobs;
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
    if (entry.job.get() != &job || !is_at_or_below(path, entry.path)) continue;
    entry.waiters.held.insert(entry.waiters.held.end(), held.begin(), held.end());
    entry.waiters.answers.push_back(answer);
    return true;
  }
  return false;
}

}  // namespace cacheshim
