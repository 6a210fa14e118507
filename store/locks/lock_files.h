// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/locks/hidden_locks.h"
#include "store/locks/lock_directory.h"
#include "store/profiles/entry_map.h"
#include "store/sys/sys.h"

namespace cacheshim {

// The lock files of a store as one job sees them. A regular file whose name is of class `lock`
// belongs to the base: one inode for all jobs and for processes outside the mount. Every job may
// open it; LockAccess defines which other processes may. A lock file is never copied up and never
// published, and may exist before the entry whose directory contains it. Files of class `shared`
// also belong to the base; they may have any size, and may be replaced by a rename from another
// name of this class.
//
// Thread-safe. Paths are as in paths.h; an object that is not a regular file is not a lock,
// whatever its name.
class LockFiles {
 public:
  // The arguments must outlive this object.
  LockFiles(const EntryMap& entries, const LockDirectory& base, HiddenLocks& hidden)
      : entries_(entries), base_(base), hidden_(hidden) {}

  // Whether a regular file of this name is, or would be, a file of the base.
  bool is_shared_name(std::string_view path) const {
    return base_.is_shared() && entries_.is_common(path);
  }
  // Returns the maximum size of a file of the base with this name.
  off_t most_bytes(std::string_view path) const;

  struct Object {
    UniqueFd fd;  // O_PATH
    struct stat st;
  };
  // Errors: ENOENT, also for a hidden file; EISDIR for anything that is not a regular file.
  Result<Object> find(const std::string& path) const;
  Result<UniqueFd> open(const std::string& path, int flags) const;
  struct Made {
    UniqueFd fd;
    bool is_new;
  };
  // Creates the file and the directories above it, or, without O_EXCL, opens the existing file. A
  // hidden file becomes visible again and counts as created. Errors: EEXIST.
  Result<Made> create(const std::string& path, int flags);
  Status remove(const std::string& path) const;
  // Replaces an existing file with the file `name` of `directory`, a directory on the base's file system.
  Status replace(const std::string& path, int directory, const std::string& name) const;

  // Adjusts a listing of `directory`: removes hidden lock files and, if the layer hides the base
  // (`base_is_hidden`), adds the base's lock files.
  void adjust(const std::string& directory, bool base_is_hidden,
              std::vector<sys::DirEntry>& listed) const;

 private:
  const EntryMap& entries_;
  const LockDirectory& base_;
  HiddenLocks& hidden_;
};

}  // namespace cacheshim
