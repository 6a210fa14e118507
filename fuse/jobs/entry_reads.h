// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_set>

#include "store/threads/mutex.h"

namespace cacheshim {

// Detects the entries of the base that a job rejects. A job rejects an entry when one of the job's
// threads opens a file of the entry in the base, and later replaces, rewrites or removes a file of
// that entry. Reads are recorded by thread, because another thread of the job may have begun to
// build the entry before the entry was published. That thread rejects nothing when it completes its
// build, even if other threads of the job have read the published entry in the meantime.
//
// Does not detect a rejection by a program that reads with one thread and builds with another.
// Thread-safe.
class EntryReads {
 public:
  // The records of one job's reads take at most 400 KiB. At kMostReads, all of them are dropped, and
  // rejections that follow a dropped read are not detected.
  static constexpr std::size_t kMostReads = 8192;
  static constexpr std::size_t kMostRejected = 1024;

  // Call when the thread has opened a file of the entry in the base for reading.
  void note_read(const std::string& unit, pid_t thread);
  bool has_any() const { return has_any_.load(std::memory_order_relaxed); }
  bool has_read(const std::string& unit, pid_t thread) const;

  void note_rejected(const std::string& unit);
  bool has_rejected(const std::string& unit) const;
  bool has_rejected_any() const { return has_rejected_any_.load(std::memory_order_relaxed); }
  void settle(const std::string& unit);  // call when the rejection has been recorded
  void clear();

 private:
  // Hints that are read without the mutex. A thread always sees the hint that its own earlier
  // note_read() or note_rejected() has set.
  std::atomic<bool> has_any_{false};
  std::atomic<bool> has_rejected_any_{false};
  mutable Mutex mutex_;
  std::unordered_set<std::uint64_t> reads_ GUARDED_BY(mutex_);  // hashes of entry and thread
  std::set<std::string> rejected_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
