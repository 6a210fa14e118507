// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/lock_removals.h"

#include <fcntl.h>

#include <cerrno>

#include "store/overlay/changes.h"
#include "store/overlay/common_names.h"
#include "store/sys/raw_locks.h"
#include "store/sys/sys.h"

namespace cacheshim {

LockRemovals::LockRemovals(LockTable& locks, const LockFiles& files)
    : locks_(locks), files_(files) {
  locks_.set_idle_hook([this](const LockFileId& id) { return finish(id); });
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
    Removal& removal = removals_[{id.device, id.inode}];
    removal.path = path;
    removal.jobs.insert(&job);
    hide_lock(job.overlay, path);
  }
  locks_.watch_idle(id);
  return {};
}

void LockRemovals::forget(Job& job, const struct stat& st) {
  const MutexLock lock(mutex_);
  const auto found = removals_.find({st.st_dev, st.st_ino});
  if (found == removals_.end()) return;
  found->second.jobs.erase(&job);
  if (found->second.jobs.empty()) removals_.erase(found);
}

// Returns whether the removal is settled.
bool LockRemovals::finish(const LockFileId& id) {
  std::string path;
  {
    const MutexLock lock(mutex_);
    const auto found = removals_.find({id.device, id.inode});
    if (found == removals_.end()) return true;
    path = found->second.path;
  }
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
  if (removed.failed_with(EBUSY)) return false;
  const MutexLock lock(mutex_);
  const auto found = removals_.find({id.device, id.inode});
  if (found == removals_.end()) return true;
  for (Job* job : found->second.jobs) job->overlay.locks().show(path);
  removals_.erase(found);
  return true;
}

}  // namespace cacheshim
