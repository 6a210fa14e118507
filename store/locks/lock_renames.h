// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/locks/hidden_locks.h"
#include "store/locks/lock_directory.h"
#include "store/profiles/entry_map.h"

namespace cacheshim {

// Renames and links of the base's lock files (LockFiles): within the base, and between the base and
// a job's layer. Unless rename_in() has to copy the file, the object stays the same and keeps its
// locks. If a file gets a name in the base that the job has hidden, the name becomes visible again.
//
// Thread-safe. Paths are as in paths.h.
class LockRenames {
 public:
  // The arguments must outlive this object.
  LockRenames(const EntryMap& entries, const LockDirectory& base, HiddenLocks& hidden)
      : entries_(entries), base_(base), hidden_(hidden) {}

  // Both names must be of class `lock`, or both of class `shared`. Errors: EXDEV otherwise.
  Status rename(const std::string& from, const std::string& to, unsigned flags);
  // Both names must be of class `lock`. Errors: EXDEV otherwise.
  Status link(const std::string& path, const std::string& new_path);

  // rename_in() and link_in() give a file of the layer the name of a lock file. rename_out() and
  // link_out() give a lock file the name `name` in `directory`, a directory of the layer.
  // rename_in() copies the file if `directory` is on another file system, and returns an O_PATH
  // descriptor of the object that got the name; other processes may have removed the name by then.
  // A file that enters the base first loses its owner, its set-id bits and the attributes that a
  // job can set (job_xattrs.h), because other users see it from then on.
  // Errors: EXDEV, except from rename_in(), if layer and base are on different file systems;
  // EXDEV for names of class `shared`; EFBIG for a file that is too large; EEXIST;
  // EPERM if the daemon may not change the file's owner.
  Result<UniqueFd> rename_in(int directory, const std::string& name, const std::string& path,
                             unsigned flags);
  Status rename_out(const std::string& path, int directory, const std::string& name) const;
  Status link_in(int object, const std::string& path);  // `object`: any descriptor of the file
  Status link_out(const std::string& path, int directory, const std::string& name) const;

 private:
  Status check_becomes_lock(const struct stat& st, const std::string& path) const;
  static Status check_free(int parent, const std::string& path);
  Status prepare_arrival(int object) const;
  Status settle_arrival(const std::string& path, const Status& named);
  Result<UniqueFd> copy_in(int directory, const std::string& name, const std::string& path,
                           unsigned flags) const;

  const EntryMap& entries_;
  const LockDirectory& base_;
  HiddenLocks& hidden_;
};

}  // namespace cacheshim
