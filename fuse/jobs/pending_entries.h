// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "store/sys/mutex.h"

namespace cacheshim {

// A job's entries whose publishing waits for a close or for the release of a lock. Thread-safe.
class PendingEntries {
 public:
  // For entries that were complete while one of their files was still open for writing.
  void postpone(const std::string& entry) EXCLUDES(mutex_);
  std::vector<std::string> take_postponed() EXCLUDES(mutex_);

  // For files that were created in entries that are built under a lock; the process that releases
  // the lock takes them. `is_theirs` must take no lock.
  void note_built(const std::string& path) EXCLUDES(mutex_);
  bool has_built() const EXCLUDES(mutex_);
  std::vector<std::string> take_built(const std::function<bool(const std::string& path)>& is_theirs)
      EXCLUDES(mutex_);

  void clear() EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::set<std::string> postponed_ GUARDED_BY(mutex_);
  std::set<std::string> built_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
