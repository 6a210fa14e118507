// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/direct_filter.h"
#include "common/unique_fd.h"
#include "fuse/jobs/mapped_file.h"
#include "fuse/jobs/name_rule_table.h"
#include "store/threads/mutex.h"

// The daemon's side of a job's shadow filter (common/direct_filter.h). The filter tells the job's processes which names
// the layer shadows. ViewFilter also counts the direct answers that these processes got, and can record the names that
// the job uses (common/used_names.h).
namespace cacheshim {

// The counter MountPage::base_changes. Call attach() first, before other threads use the object;
// after that it is thread-safe. Until begin(), count() does nothing.
class BaseChanges {
 public:
  void attach(std::uint64_t* word) { word_ = word; }
  // Starts to count changes.
  void begin() const {
    if (word_ != nullptr) std::atomic_ref(*word_).store(1);
  }
  void count() const {
    if (word_ == nullptr || std::atomic_ref(*word_).load() == 0) return;
    std::atomic_ref(*word_).fetch_add(1);
  }

 private:
  std::uint64_t* word_ = nullptr;
};

// Entries of the base whose reads the daemon must see. Processes open them only through the mount.
// Thread-safe.
class MountOnlyEntries {
 public:
  static constexpr std::size_t kMost = 256;
  // Returns false if the entry is already known, or if there are kMost entries.
  bool add(const std::string& entry) {
    const MutexLock lock(mutex_);
    return entries_.size() < kMost && entries_.insert(entry).second;
  }
  std::vector<std::string> all() const {
    const MutexLock lock(mutex_);
    return {entries_.begin(), entries_.end()};
  }

 private:
  mutable Mutex mutex_;
  std::unordered_set<std::string> entries_ GUARDED_BY(mutex_);
};

// The data of a mount that direct answers use, including the open directories for filters and
// counters in its run directory.
struct DirectAccess {
  DirectAccess(UniqueFd views_directory, UniqueFd counters_directory,
               const std::vector<Profile>& profiles)
      : views(std::move(views_directory)),
        counters(std::move(counters_directory)),
        rules(profiles) {}
  UniqueFd views;
  UniqueFd counters;
  NameRuleTable rules;
  BaseChanges changes;
  mutable MountOnlyEntries mount_only;
};

// One job's filter. Thread-safe. If the daemon cannot write the filter (no space), the job has none, and the job's
// processes use the mount.
//
// A key stays until the job drops its layer, even after the job has removed the name. So a job could fill the daemon's
// memory by creating and removing names. To prevent this, a filter that exceeds kMostKeys keys is replaced by one that
// shadows all names. The job's processes then open everything through the mount until the job drops its layer; this is
// slower, but correct.
class ViewFilter {
 public:
  // A filter with this many keys takes 20 MiB of memory and a file of 8 MiB.
  static constexpr std::size_t kMostKeys = std::size_t{1} << 19;

  // `directories` must outlive this object; null: the job has no filter file.
  ViewFilter(std::string job, const DirectAccess* directories);
  ~ViewFilter();

  // Creates the file, if it does not exist, for the view of `uid`. That view shows its files with
  // the group `gid`.
  void open(uid_t uid, gid_t gid);
  // Changes the owner. The processes then map the filter again.
  void set_owner(uid_t uid, gid_t gid);
  // Call when the job has ended. Makes the processes stop using the filter. Keeps the added keys.
  void close();

  // Call before a change that shadows `path` and, if `tree`, the base's files below it.
  void add(std::string_view path, bool tree);
  // Call when the job has dropped its layer. Drops all keys except those of the names `kept`. No other thread may add a
  // key meanwhile.
  void clear(const std::vector<std::string>& kept = {});

  // Sets whether a process of the job is building an entry: FilterHeader::building.
  void set_building(bool is_building);

  // The numbers of direct answers from the base since this object was made.
  struct Counts {
    std::uint64_t opens = 0;
    std::uint64_t lookups = 0;
  };
  Counts counts() const;

  // Starts a new, empty record of the names of the base that the job uses.
  void record_uses();
  bool records_uses() const { return records_uses_.load(std::memory_order_relaxed); }
  // Records a use that the daemon sees. Call with a path of the base.
  void note_use(std::string_view path);
  // Returns the names that the job has used since record_uses(), in the form of used_names.h, and stops recording.
  // Returns an empty vector if record_uses() was not called.
  std::vector<std::uint64_t> take_uses();

 private:
  void make_file() REQUIRES(mutex_);
  void retire() REQUIRES(mutex_);
  void add_key(FilterKey key) REQUIRES(mutex_);
  void add_mount_only() REQUIRES(mutex_);
  void shadow_all() REQUIRES(mutex_);
  void set_bits(FilterKey key) REQUIRES(mutex_);
  void make_counters() REQUIRES(mutex_);
  void give_counters() REQUIRES(mutex_);
  Counts read_counts() const REQUIRES(mutex_);
  void read_uses() REQUIRES(mutex_);

  const std::string job_;
  const DirectAccess* const directories_;
  mutable Mutex mutex_{LockRank::kViewFilter};
  bool is_open_ GUARDED_BY(mutex_) = false;
  bool is_building_ GUARDED_BY(mutex_) = false;
  uid_t uid_ GUARDED_BY(mutex_) = 0;
  gid_t gid_ GUARDED_BY(mutex_) = 0;
  std::unordered_set<FilterKey> keys_ GUARDED_BY(mutex_);
  bool shadows_all_ GUARDED_BY(mutex_) = false;
  std::uint32_t word_count_ GUARDED_BY(mutex_) = 0;
  MappedFile file_ GUARDED_BY(mutex_);
  UniqueFd counters_ GUARDED_BY(mutex_);
  std::atomic<bool> records_uses_{false};
  std::vector<std::uint64_t> used_ GUARDED_BY(mutex_);  // empty, or kUsedWords words
  Counts before_ GUARDED_BY(mutex_);  // the counts of closed counter files
};

}  // namespace cacheshim
