// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "store/sys/name_table.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// A job's entries whose publishing waits for a close or for the release of a lock. Each of the two lists takes at most
// kMostBytes. Names beyond that are dropped: their entries are published when the job ends successfully. Thread-safe.
class PendingEntries {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{2}
                                            << 20;  // about 10,000 names of 100 bytes

  // Call postpone() for an entry that was complete while one of its files was still open for
  // writing.
  void postpone(const std::string& entry) EXCLUDES(mutex_);
  std::vector<std::string> take_postponed() EXCLUDES(mutex_);

  // Call note_built() for a file that was created in an entry that is built under a lock. When the
  // lock is released, call take_built(), which removes and returns the files for which `is_theirs`
  // is true. `is_theirs` must take no lock.
  void note_built(const std::string& path) EXCLUDES(mutex_);
  bool has_built() const EXCLUDES(mutex_);
  std::vector<std::string> take_built(const std::function<bool(const std::string& path)>& is_theirs)
      EXCLUDES(mutex_);

  void clear() EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  NameTable<std::monostate> postponed_ GUARDED_BY(mutex_){kMostBytes};
  NameTable<std::monostate> built_ GUARDED_BY(mutex_){kMostBytes};
};

}  // namespace cacheshim
