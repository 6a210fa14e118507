// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/base/audit_log.h"
#include "store/base/store.h"
#include "store/profiles/entry_map.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Implements the option verify_on_open: compares each code file (*.so, *.cubin) with its recorded
// digest before any process reads the file. Compares an inode once, and again only after it has
// changed. The first lookup of an entry's file verifies all code files of the entry, because a
// program that has found one file of an entry must find the others. A damaged entry goes to trash,
// so that programs find it missing and build it again.
//
// Thread-safe. No thread waits while another one reads a code file, so two threads may read the
// same file. Memory: a few hundred bytes for each code file of the base.
class OpenVerifier {
 public:
  // `store` and `entries` must outlive the object.
  OpenVerifier(const Store& store, const EntryMap& entries) : store_(store), entries_(entries) {}

  // Whether a file of this name is compared with its digest.
  static bool is_checked_name(std::string_view name);

  struct Verdict {
    std::string why;  // "'PATH': the error"; "" if all files are as recorded
    // All paths of a damaged entry. If the move failed, some or all of them are not in trash.
    std::vector<std::string> trashed_paths;
  };
  // Call before a lookup or open of the base file `path` succeeds, with no lock held. Reads the code files of the
  // file's entry, except those that were read before and have not changed since. Moves the entry to trash if one of
  // them is damaged. If the records or a file temporarily cannot be read, for example because no descriptor is free,
  // reports no damage: the job uses the file unchecked, and the next lookup tries again. Logs only the first of these
  // failures.
  Verdict check(const std::string& path) EXCLUDES(mutex_);

 private:
  struct Stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    timespec changed;
    timespec written;
    bool operator==(const Stamp& other) const;
  };
  static Stamp stamp_of(const struct stat& st);
  std::string unit_of(const std::string& path) const REQUIRES(mutex_);
  bool is_known(const std::string& path, const std::string& unit) const REQUIRES(mutex_);
  Status read_on() REQUIRES(mutex_);
  void forget(const std::string& unit) REQUIRES(mutex_);
  std::vector<AuditFile> files_of(const std::string& unit) const REQUIRES(mutex_);
  Result<std::string> fault_in(const std::string& unit) EXCLUDES(mutex_);
  bool has_seen(const std::string& path, const Stamp& stamp) const REQUIRES(mutex_);
  std::vector<std::string> move_to_trash(const std::string& unit) const EXCLUDES(mutex_);
  Verdict unchecked(const std::string& path, Errno error);

  const Store& store_;
  const EntryMap& entries_;
  std::atomic<bool> has_warned_{false};
  mutable Mutex mutex_;
  AuditLog::Places places_ GUARDED_BY(mutex_);  // the records have been read up to here
  std::unordered_map<std::string, std::map<std::string, AuditFile>> units_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::string> unit_by_path_ GUARDED_BY(mutex_);
  // The files that agreed with their record or have none, as they were when they were checked.
  std::unordered_map<std::string, Stamp> seen_ GUARDED_BY(mutex_);
  std::set<std::string> checked_units_ GUARDED_BY(mutex_);  // units whose files have been checked
};

}  // namespace cacheshim
