// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/counters.h"
#include "store/base/store.h"
#include "store/threads/mutex.h"

// Records the entries of the base that jobs reject: a job opens the complete entry and then builds it again. The first
// writer wins, so without these records every later job would build the entry again.
//
// Publisher::note_rebuild() and EntryReads detect a rebuild. This class decides when a rebuild replaces the base's
// entry:
//
//   1. At least kFewestJobs jobs have rebuilt it with other content. Only jobs that publish entries as soon as the
//      entries are complete count.
//   2. The jobs belong to two or more users, or the administrator has named the publishers, or the jobs' user has
//      published all files of the entry or owns them. Otherwise one user with several jobs could replace another
//      user's entry.
//   3. The entry was not replaced within kReplacePeriod. If a program never builds equal files, its entry is thus
//      replaced at most once a day.
//
// Records are in memory, so a new daemon begins without records: each rejected entry is rebuilt once more, and may be
// replaced once more within the period.
namespace cacheshim {

// Identifies the rejected version of an entry by its directory or the first of its files. Replacing the entry makes a
// new version.
struct BaseVersion {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const BaseVersion&) const = default;
};

// A file of the base's entry.
struct BaseFile {
  std::string path;
  uid_t owner = 0;
};

struct Rebuild {
  std::string unit;
  BaseVersion version;
  std::string job;
  uid_t uid = 0;
  bool is_equal = false;     // whether the rebuild produced the same files as the base's entry
  // whether the job publishes entries as soon as they are complete; if not, the rebuild is recorded, but is no reason
  // to replace the base's entry
  bool is_published = true;
};

// Thread-safe. Memory: kMostEntries records, each with one path and up to twice kMostJobs job ids.
class RejectedEntries {
 public:
  // More than 1, because a single job may be faulty. Counts jobs, not processes, because a user decides how many
  // processes a job has.
  static constexpr std::size_t kFewestJobs = 2;
  // A day: jobs refill a cache within hours, and replacing up to kMostEntries entries once a day costs little.
  static constexpr std::time_t kReplacePeriod = 24 * 3600;
  static constexpr std::size_t kMostEntries = 1024;
  static constexpr std::size_t kMostJobs = 16;  // the maximum size of each set of a record: jobs or users

  struct Summary {
    std::string unit;
    std::uint64_t times = 0;  // rebuilds with other content, or by jobs that do not publish
    std::uint64_t equal = 0;  // rebuilds with equal files
    std::size_t jobs = 0;     // the number of different jobs; kMostJobs means that many or more
    std::size_t users = 0;    // the number of different users; kMostJobs means that many or more
    std::time_t last = 0;      // when the entry was last rebuilt, in seconds since 1970
    std::time_t replaced = 0;  // when the entry was last replaced; 0: never
  };

  // `store` and `counters` must outlive the object.
  RejectedEntries(const Store& store, Counters& counters) : store_(store), counters_(counters) {}

  // Call if the administrator has named the publishers ([publish] allow), before all other
  // functions.
  void trust_publishers() { trusts_publishers_ = true; }
  void set_clock(std::function<std::time_t()> now) { now_ = std::move(now); }

  // Counts and records a rebuild. If there are kMostEntries records and all of these entries were replaced within
  // kReplacePeriod, only counts the rebuild.
  void note(const Rebuild& rebuild);
  // Whether the rebuild that was noted last may replace this version of the entry. `files` are all files of this
  // version. May read the audit records, once per version. Reading many records takes a long time: call from a thread
  // of a FairQueue.
  bool may_replace(const std::string& unit, const BaseVersion& version,
                   const std::vector<BaseFile>& files);
  void note_replaced(const std::string& unit);
  bool has_noted(const std::string& unit, const BaseVersion& version, const std::string& job) const;

  std::optional<Summary> find(const std::string& unit) const;
  // Returns at most `most` entries that have not been replaced since their last rebuild; the most often rebuilt come
  // first.
  std::vector<Summary> worst(std::size_t most) const;

 private:
  struct Record {
    BaseVersion version;
    std::uint64_t times = 0;
    std::uint64_t equal = 0;
    std::set<std::string> jobs;
    std::set<uid_t> users;
    std::set<std::string> voters;  // jobs whose rebuilds count towards kFewestJobs
    std::set<uid_t> voting_users;
    std::time_t last = 0;
    std::time_t replaced = 0;
    std::optional<bool> is_own;  // whether the only voting user published or owns all files; empty: not yet checked
  };
  static Summary summary_of(const std::string& unit, const Record& record);
  // Returns null if there is no room for another record.
  Record* record_of(const std::string& unit) REQUIRES(mutex_);
  bool was_replaced_lately(const Record& record) const;
  bool is_own(const std::string& unit, uid_t uid, const std::vector<BaseFile>& files) const
      EXCLUDES(mutex_);

  const Store& store_;
  Counters& counters_;
  bool trusts_publishers_ = false;
  std::function<std::time_t()> now_ = [] { return std::time(nullptr); };
  mutable Mutex mutex_;  // not held across a system call
  std::map<std::string, Record> records_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
