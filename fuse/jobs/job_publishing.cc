// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/job_publishing.h"

#include <unistd.h>

#include "common/root_process.h"
#include "store/sys/paths.h"
#include "store/sys/process.h"

namespace cacheshim {

void JobPublishing::begin() {
  const MutexLock lock(mutex_);
  total_ = {};
}

void JobPublishing::count(const PublishReport& report) {
  const MutexLock lock(mutex_);
  total_.entries += report.entries;
  total_.files += report.files;
  total_.bytes += report.bytes;
}

JobPublishing::Total JobPublishing::total() const {
  const MutexLock lock(mutex_);
  return total_;
}

std::string JobPublishing::why_unpublished(const std::string& unit) const {
  const MutexLock lock(mutex_);
  const std::string* const kept = kept_.find(unit);
  return kept == nullptr ? "" : *kept;
}

void JobPublishing::forget_layer() {
  const MutexLock lock(mutex_);
  (void)conflicts_.take();
  (void)kept_.take();
}

bool JobPublishing::note_conflict(const std::string& unit) {
  const MutexLock lock(mutex_);
  return conflicts_.find(unit) == nullptr && conflicts_.find_or_add(unit) != nullptr;
}

bool JobPublishing::note_why_unpublished(const std::string& unit, const std::string& reason) {
  const MutexLock lock(mutex_);
  if (reason.empty()) return kept_.erase(unit);
  std::string* const known = kept_.find_or_add(unit);
  if (known == nullptr || *known == reason) return false;
  *known = reason;
  return true;
}

bool JobPublishing::is_being_written(dev_t device, ino_t inode) {
  return parts_.unsettled.is_being_written(device, inode);
}

bool JobPublishing::wait_until_closed(dev_t device, ino_t inode) {
  return parts_.unsettled.wait_until_closed(device, inode);
}

std::string JobPublishing::why_refused() const { return parts_.policy.why_refused(); }

PublishingJob JobPublishing::identity() const {
  return {parts_.job_id, parts_.life.cycle(), parts_.views.owner()};
}

bool JobPublishing::has_one_user() const {
  static const bool has_one = [] {
    const auto map = read_proc(::getpid(), "uid_map");
    return parse_uid_map(map ? *map : "").has_one_user;
  }();
  return has_one;
}

bool JobPublishing::has_rejected(const std::string& unit) {
  return parts_.reads.has_rejected(unit);
}

void JobPublishing::settle_rejected(const std::string& unit) { parts_.reads.settle(unit); }

bool JobPublishing::may_replace() const {
  return parts_.policy.effective() == PublishPolicy::kComplete;
}

void JobPublishing::published(const std::string& path, const struct stat& base) {
  parts_.attributes_changed(path);  // first, because NodeObjects::published() may remove this name
  const NodeIndex directory = parts_.nodes.names().find_path(parts_.view_root, parent_path(path));
  if (directory != 0)
    parts_.nodes.objects().published(directory, std::string(base_name(path)), base);
}

}  // namespace cacheshim
