// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/result.h"
#include "fuse/jobs/job.h"
#include "fuse/services/locks/lock_table.h"
#include "store/locks/lock_files.h"
#include "store/sys/mutex.h"

namespace cacheshim {

// Lock files of the base that jobs unlink. If other processes have locked a file or wait for it,
// the file stays, because otherwise its locks would exclude no process any more: it is hidden from
// the job that unlinked it, and removed after the last of these locks. Thread-safe.
class LockRemovals {
 public:
  // Both must outlive it.
  LockRemovals(LockTable& locks, const LockFiles& files);

  // Whether `process` has the lock file at `path` locked.
  bool is_held_by(const Job& job, const std::string& path, pid_t process)
      REQUIRES_SHARED(job.overlay.mutex());
  // Unlinks a lock file for `process`. `hold`: as for Overlay::remove_file().
  Status remove(Job& job, const std::string& path, pid_t process, Hold hold)
      REQUIRES_SHARED(job.overlay.mutex());
  // Call when the job has created the file again: it must no longer be removed for this job.
  void forget(Job& job, const struct stat& st);

 private:
  struct Removal {
    std::string path;
    std::set<Job*> jobs;
  };

  bool finish(const LockFileId& id) EXCLUDES(mutex_);

  LockTable& locks_;
  const LockFiles& files_;
  Mutex mutex_{LockRank::kRemovals};
  std::map<std::pair<std::uint64_t, std::uint64_t>, Removal> removals_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
