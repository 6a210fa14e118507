// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/lock_removals.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <vector>

#include "store/overlay/changes.h"
#include "store/overlay/common_names.h"
#include "store/sys/raw_locks.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// The polling interval for a lock file that a process outside the mount has locked.
constexpr std::chrono::milliseconds kRemovalPoll{200};
// The shortest interval between two checks. Without it, each release of a lock would cause an immediate check.
constexpr std::chrono::milliseconds kShortest{5};

}  // namespace

LockRemovals::LockRemovals(EventLoop& loop, LockTable& locks, const LockFiles& files)
    : locks_(locks),
      files_(files),
      task_(loop, "removing lock files", [this](const auto&) { return tend(); }) {
  locks_.set_release_hook([this] {
    if (has_removals_) task_.wake();
  });
}

bool LockRemovals::is_held_by(const Job& job, const std::string& path, pid_t process) {
  const auto opened = job.overlay.open(path, O_PATH);
  const auto st = opened ? sys::stat_fd(opened->fd.get()) : opened.error();
  return st && locks_.is_held_by({st->st_dev, st->st_ino}, process);
}

Status LockRemovals::remove(Job& job, const std::string& path, pid_t process, Hold hold) {
  CACHESHIM_TRY(opened, job.overlay.open(path, O_PATH));
  CACHESHIM_TRY(st, sys::stat_fd(opened.fd.get()));
  const LockFileId id{st.st_dev, st.st_ino};
  const auto open = [&opened] { return sys::reopen(opened.fd.get(), O_PATH); };
  const Status removed =
      locks_.unless_wanted(id, open, process, [&]() REQUIRES_SHARED(job.overlay.mutex()) -> Status {
        if (is_locked_elsewhere(st.st_dev, st.st_ino)) return Errno(EBUSY);
        return changes::remove_file(job.overlay, path, hold);
      });
  if (!removed.failed_with(EBUSY)) return removed;
  {
    const MutexLock lock(mutex_);
    Removal& removal = removals_[id];
    removal.path = path;
    removal.jobs.insert(job.shared_from_this());
    has_removals_ = true;
    hide_lock(job.overlay, path);
  }
  task_.wake();
  return {};
}

void LockRemovals::forget(Job& job, const struct stat& st) {
  const MutexLock lock(mutex_);
  const auto found = removals_.find({st.st_dev, st.st_ino});
  if (found == removals_.end()) return;
  found->second.jobs.erase(job.shared_from_this());
  if (found->second.jobs.empty()) removals_.erase(found);
}

EventLoop::Clock::time_point LockRemovals::tend() {
  if (EventLoop::Clock::now() < next_check_) return next_check_;
  std::vector<LockFileId> ids;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, removal] : removals_) ids.push_back(id);
  }
  for (const LockFileId& id : ids) finish(id);
  const auto now = EventLoop::Clock::now();
  next_check_ = now + kShortest;
  const MutexLock lock(mutex_);
  has_removals_ = !removals_.empty();
  return has_removals_ ? now + kRemovalPoll : EventLoop::kNever;
}

// Removes the file, unless a process has a lock on it or waits for one. Holds the mutex throughout: a job that creates
// the file again calls forget(), and once forget() has returned, the file must stay.
void LockRemovals::finish(const LockFileId& id) {
  const MutexLock lock(mutex_);
  const auto found = removals_.find(id);
  if (found == removals_.end()) return;
  const std::string& path = found->second.path;
  const auto open = [&] { return files_.open(path, O_PATH); };
  const auto is_there = [&] {
    const auto st = files_.find(path);
    return st && st->st.st_dev == id.device && st->st.st_ino == id.inode;
  };
  const Status removed =
      !is_there() ? Status() : locks_.unless_wanted(id, open, -1, [&]() -> Status {
        if (!is_there()) return {};
        if (is_locked_elsewhere(id.device, id.inode)) return Errno(EBUSY);
        return files_.remove(path);
      });
  if (removed.failed_with(EBUSY)) return;
  for (const auto& job : found->second.jobs) job->overlay.locks().hidden.show(path);
  removals_.erase(found);
}

}  // namespace cacheshim
