// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/locks/lock_directory.h"
#include "store/locks/lock_files.h"
#include "store/profiles/entry_map.h"

namespace cacheshim {

// Files of the base that stand in for a job's own file when the job locks it, and have no other
// purpose. The job's file is a small `*.lock` in a cache without a profile, or a baton. The file
// for a `*.lock` has the same path. The file for a baton is in leases/. If it had the baton's own
// path, processes that use the base without a mount would take it for the baton itself, and would
// wait until it is removed.
//
// Thread-safe. Paths are those of the job's files, as in paths.h.
class NamedLockFiles {
 public:
  // The arguments must outlive this object.
  NamedLockFiles(const EntryMap& entries, const LockDirectory& base, const LockFiles& files)
      : entries_(entries), base_(base), files_(files) {}

  // Whether open() and ensure() accept this name.
  bool may_become_lock(const std::string& path) const {
    return base_.is_shared() && entries_.may_become_lock(path);
  }
  // Returns an O_PATH descriptor. Errors: ENOENT if there is no file, or may_become_lock() is false;
  // EFBIG for a file that is too large; EISDIR for anything that is not a regular file; EACCES for a
  // file that the daemon cannot read and write.
  Result<UniqueFd> open(const std::string& path) const;
  // Accepts every name. Errors: those of LockFiles::find().
  Result<LockFiles::Object> find(const std::string& path) const;
  // As open(), but first creates an empty file, and the directories above it, if there is no file.
  // LockAccess defines which users may open the file.
  Result<UniqueFd> ensure(const std::string& path) const;

 private:
  std::string place_of(const std::string& path) const;

  const EntryMap& entries_;
  const LockDirectory& base_;
  const LockFiles& files_;
};

}  // namespace cacheshim
