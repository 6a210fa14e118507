// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/profiles/profile.h"

// Maps a path in the store to its cache family, its entry and the class of its name.
namespace cacheshim {

// The string views point into the path that was passed to EntryMap::find().
struct EntryRef {
  const Profile* profile;
  const EntryRule* rule;
  // "triton/KEY"; for an entry of files, the part that the files' paths share
  std::string_view entry;
  // The rest of the path. For a directory entry: "tmp.pid_7/x.cubin", or "" for the directory
  // itself. For an entry of files: the ending of the file's name, such as ".body".
  std::string_view rest;

  bool is_entry_directory() const { return rule->is_directory() && rest.empty(); }
  // Whether rebuilds count as rejections: a job that opens the complete entry and then builds it
  // again has rejected it (rejected_entries.h).
  bool counts_rebuilds() const {
    return profile->may_publish_early() && rule->is_end_seen() && !rule->renewed;
  }
  // Returns the name by which the publisher and the records know the entry: the path of its directory, or of the first
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
  // Whether all jobs share the locks on a small file of this name, beginning with the first lock request. True for
  // batons, and for `*.lock` in a cache without a profile.
  bool may_become_lock(std::string_view path) const;
  // Whether a file of `size` bytes and this name can only be a lock: it is empty, and
  // may_become_lock() is true.
  bool is_bare_lock(std::string_view path, off_t size) const {
    return size == 0 && may_become_lock(path);
  }
  // Whether the name is of class lock or shared: all jobs share one file, which is in the base.
  bool is_common(std::string_view path) const;
  // Whether the family of `path` has names of class lock or shared.
  bool has_common(std::string_view path) const;
  // Returns true for names that are not part of an entry: scratch names, locks and batons.
  bool is_beside_entry(std::string_view path) const;

 private:
  const std::vector<Profile>& profiles_;
};

}  // namespace cacheshim
