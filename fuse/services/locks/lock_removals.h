// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/result.h"
#include "fuse/jobs/job.h"
#include "fuse/services/locks/lock_table.h"
#include "store/locks/lock_files.h"
#include "store/threads/event_loop.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Unlinks lock files of the base for jobs. If other processes have locked a file or wait for its lock, the file must
// stay, because a lock on an unlinked file would not exclude processes that create the file again. So LockRemovals
// hides the file from the job that unlinked it, and removes the file once the last of these locks is released.
// Thread-safe.
class LockRemovals {
 public:
  // All must outlive this object.
  LockRemovals(EventLoop& loop, LockTable& locks, const LockFiles& files);

  // Whether `process` holds an exclusive lock on the lock file at `path`.
  bool is_held_by(const Job& job, const std::string& path, pid_t process)
      REQUIRES_SHARED(job.overlay.mutex());
  // Unlinks a lock file for `process`. `hold`: as for changes::remove_file().
  Status remove(Job& job, const std::string& path, pid_t process, Hold hold)
      REQUIRES_SHARED(job.overlay.mutex());
  // Call when the job has created the file again: from then on, the file must not be removed for this job.
  void forget(Job& job, const struct stat& st);

 private:
  struct Removal {
    std::string path;
    std::set<std::shared_ptr<Job>> jobs;
  };

  // Removes each file on which no process has a lock or waits for one. Returns when to call tend() again.
  EventLoop::Clock::time_point tend() EXCLUDES(mutex_);
  void finish(const LockFileId& id) EXCLUDES(mutex_);

  LockTable& locks_;
  const LockFiles& files_;
  Mutex mutex_{LockRank::kRemovals};
  std::map<LockFileId, Removal> removals_ GUARDED_BY(mutex_);
  std::atomic<bool> has_removals_{false};
  EventLoop::Clock::time_point next_check_{};  // used only by tend()
  EventLoop::Task task_;                       // keep last: it uses the other members
};

}  // namespace cacheshim
