// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/locks/lock_access.h"

namespace cacheshim {

// The maximum size of a lock file, in bytes. There is a limit because all users share the file.
inline constexpr off_t kMostLockBytes = 4096;

// Opens and creates the base's lock files, which all jobs share, and their directories. Applies the
// LockAccess that these files have outside the mount. Thread-safe. Paths are as in paths.h.
class LockDirectory {
 public:
  // From this call on, the lock files belong to `base`, a writable directory that stays open. If `base` is -1, they are
  // ordinary files of the layer. `staging` is a directory on the base's file system, for files that are to be renamed
  // into the base. `access` defines which users may lock a lock file outside the mount, and must outlive this object.
  // If it is null, the access does not change; before the first change, all users may lock these files.
  void share(int base, const LockAccess* access = nullptr, int staging = -1);
  bool is_shared() const { return base_ >= 0; }
  int staging() const { return staging_; }
  const LockAccess& access() const { return *access_; }
  // Gives a lock file the mode and the ACL that access() defines. `object`: any descriptor of the file.
  void restrict(int object) const;

  // As sys::open_beneath(), in the base. The mode applies to a new file.
  Result<UniqueFd> open(std::string_view path, int flags, mode_t mode = 0) const;
  // Creates the directory and all directories above it, unless they exist. Errors: ENAMETOOLONG if the path is
  // too deep for the base (paths.h).
  Status ensure_directory(const std::string& path) const;
  // These return an O_PATH descriptor of the directory above `path`; ensure_parent() creates it if
  // necessary.
  Result<UniqueFd> open_parent(const std::string& path) const;
  Result<UniqueFd> ensure_parent(const std::string& path) const;

 private:
  static const LockAccess& open_to_all();

  std::atomic<int> base_{-1};
  std::atomic<int> staging_{-1};
  std::atomic<const LockAccess*> access_{&open_to_all()};
};

}  // namespace cacheshim
