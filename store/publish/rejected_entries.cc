// SPDX-License-Identifier: Apache-2.0
#include "store/publish/rejected_entries.h"

#include <algorithm>

#include "store/sys/paths.h"

namespace cacheshim {
namespace {

template <class T>
void remember(std::set<T>& known, const T& one) {
  if (known.size() < RejectedEntries::kMostJobs) known.insert(one);
}

}  // namespace

bool RejectedEntries::was_replaced_lately(const Record& record) const {
  return record.replaced != 0 && now_() - record.replaced < kReplacePeriod;
}

RejectedEntries::Record* RejectedEntries::record_of(const std::string& unit) {
  const auto known = records_.find(unit);
  if (known != records_.end()) return &known->second;
  if (records_.size() >= kMostEntries) {
    auto oldest = records_.end();
    for (auto one = records_.begin(); one != records_.end(); ++one) {
      if (was_replaced_lately(one->second)) continue;
      if (oldest == records_.end() || one->second.last < oldest->second.last) oldest = one;
    }
    if (oldest == records_.end()) return nullptr;
    records_.erase(oldest);
  }
  return &records_[unit];
}

void RejectedEntries::note(const Rebuild& rebuild) {
  (rebuild.is_equal ? counters_.rebuilds_equal : counters_.entries_rejected).fetch_add(1);
  const MutexLock lock(mutex_);
  Record* const record = record_of(rebuild.unit);
  if (record == nullptr) return;
  if (record->version != rebuild.version) {
    const std::time_t replaced = record->replaced;
    *record = {};
    record->version = rebuild.version;
    record->replaced = replaced;
  }
  ++(rebuild.is_equal ? record->equal : record->times);
  record->last = now_();
  remember(record->jobs, rebuild.job);
  remember(record->users, rebuild.uid);
  if (rebuild.is_equal || !rebuild.is_published) return;
  remember(record->voters, rebuild.job);
  remember(record->voting_users, rebuild.uid);
}

bool RejectedEntries::may_replace(const std::string& unit, const BaseVersion& version,
                                  const std::vector<BaseFile>& files) {
  uid_t only_user = 0;
  {
    const MutexLock lock(mutex_);
    const auto found = records_.find(unit);
    if (found == records_.end() || found->second.version != version) return false;
    const Record& record = found->second;
    if (record.voters.size() < kFewestJobs || was_replaced_lately(record)) return false;
    if (trusts_publishers_ || record.voting_users.size() > 1) return true;
    if (record.is_own) return *record.is_own;
    only_user = *record.voting_users.begin();
  }
  const bool owns = is_own(unit, only_user, files);
  const MutexLock lock(mutex_);
  const auto found = records_.find(unit);
  if (found != records_.end() && found->second.version == version) found->second.is_own = owns;
  return owns;
}

// Whether the user has published all files of the entry, or owns them all. A single file is not enough: a user who adds
// a file to another user's entry does not own the entry.
bool RejectedEntries::is_own(const std::string& unit, uid_t uid,
                             const std::vector<BaseFile>& files) const {
  const auto is_theirs = [uid](const BaseFile& file) { return file.owner == uid; };
  if (std::all_of(files.begin(), files.end(), is_theirs)) return true;
  std::vector<AuditRecord> records;
  const auto keep = [&](AuditRecord record) {
    if (record.unit == unit) records.push_back(std::move(record));
  };
  if (!store_.audit().read_naming(base_name(unit), keep)) return false;
  std::stable_sort(records.begin(), records.end(),
                   [](const auto& left, const auto& right) { return left.time < right.time; });
  std::map<std::string, std::optional<unsigned>> publishers;  // the publisher of each file, by path
  for (const AuditRecord& record : records) {
    if (record.event != AuditRecord::Event::kPublish) publishers.clear();
    for (const AuditFile& file : record.files) publishers[file.path] = record.uid;
  }
  return std::all_of(files.begin(), files.end(), [&](const BaseFile& file) {
    const auto publisher = publishers.find(file.path);
    return publisher != publishers.end() && publisher->second == uid;
  });
}

void RejectedEntries::note_replaced(const std::string& unit) {
  counters_.entries_replaced.fetch_add(1);
  const MutexLock lock(mutex_);
  if (Record* const record = record_of(unit)) record->replaced = now_();
}

RejectedEntries::Summary RejectedEntries::summary_of(const std::string& unit,
                                                     const Record& record) {
  Summary summary{.unit = unit, .times = record.times, .equal = record.equal};
  summary.jobs = record.jobs.size();
  summary.users = record.users.size();
  summary.last = record.last;
  summary.replaced = record.replaced;
  return summary;
}

bool RejectedEntries::has_noted(const std::string& unit, const BaseVersion& version,
                                const std::string& job) const {
  const MutexLock lock(mutex_);
  const auto found = records_.find(unit);
  return found != records_.end() && found->second.version == version &&
         found->second.jobs.contains(job);
}

std::optional<RejectedEntries::Summary> RejectedEntries::find(const std::string& unit) const {
  const MutexLock lock(mutex_);
  const auto found = records_.find(unit);
  if (found == records_.end()) return std::nullopt;
  return summary_of(unit, found->second);
}

std::vector<RejectedEntries::Summary> RejectedEntries::worst(std::size_t most) const {
  std::vector<Summary> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [unit, record] : records_) {
      if (record.replaced < record.last) all.push_back(summary_of(unit, record));
    }
  }
  const auto is_worse = [](const Summary& left, const Summary& right) {
    return left.times + left.equal > right.times + right.equal;
  };
  std::stable_sort(all.begin(), all.end(), is_worse);
  if (all.size() > most) all.resize(most);
  return all;
}

}  // namespace cacheshim
