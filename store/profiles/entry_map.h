// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/profiles/profile.h"

// Finds the entry and the cache family of a path of the store, and the class of its name.
namespace cacheshim {

// The string views point into the path that was passed to EntryMap::find().
struct EntryRef {
  const Profile* profile;
  const EntryRule* rule;
  std::string_view entry;  // "triton/KEY"; for an entry of files, the common part of the files' paths
  // The rest of the path. For a directory entry: "tmp.pid_7/x.cubin", or "" for the directory
  // itself. For an entry of files: the ending of the file's name, such as ".body".
  std::string_view rest;

  bool is_entry_directory() const { return rule->is_directory() && rest.empty(); }
  // Whether rebuilds count as rejections: a job that opens the complete entry and then builds it
  // again has rejected it (rejected_entries.h).
  bool counts_rebuilds() const {
    return profile->may_publish_early() && rule->is_end_seen() && !rule->renewed;
  }
  // Returns the entry as the publisher and the records name it: by its directory, or by the first
  // of its files.
  std::string unit() const;
  // For an entry of files: returns the paths of these files.
  std::vector<std::string> file_paths() const;
};

// Thread-safe. Paths are relative to the store.
class EntryMap {
 public:
  // `profiles` must outlive the map.
  explicit EntryMap(const std::vector<Profile>& profiles) : profiles_(profiles) {}

  const std::vector<Profile>& profiles() const { return profiles_; }
  const Profile* find_profile(std::string_view name) const;
  // Returns nothing for a path of an unknown family, for a path above the entries, and for a file
  // that belongs to no entry.
  std::optional<EntryRef> find(std::string_view path) const;
  // Returns the class of the name at `path`; in an unknown family every name is private.
  NameClass class_of(std::string_view path) const;
  bool is_scratch(std::string_view path) const { return class_of(path) == NameClass::kScratch; }
  bool is_lock(std::string_view path) const;
  // Returns the directory that is built under this lock file, if the lock's path determines it
  // (EntryRule::entry_built_under()); otherwise "".
  std::string entry_built_under(std::string_view lock_file) const;
  // Whether all jobs share the locks of a small file of this name from the first lock request on:
  // `*.lock` in a cache without a profile, and batons.
  bool may_become_lock(std::string_view path) const;
  // Whether a file of `size` bytes and this name can only be a lock: it is empty, and
  // may_become_lock() is true.
  bool is_bare_lock(std::string_view path, off_t size) const {
    return size == 0 && may_become_lock(path);
  }
  // Whether this is a lock or a shared name: all jobs share the file, which is in the base.
  bool is_common(std::string_view path) const;
  // Whether the family of `path` has lock or shared names.
  bool has_common(std::string_view path) const;
  // Returns true for names that are not part of an entry: scratch names, locks and batons.
  bool is_beside_entry(std::string_view path) const;

 private:
  const std::vector<Profile>& profiles_;
};

}  // namespace cacheshim
