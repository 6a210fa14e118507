// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/locks/lock_access.h"
#include "store/profiles/entry_map.h"
#include "store/sys/mutex.h"
#include "store/sys/sys.h"

namespace cacheshim {

// The maximum size of a lock file, which all users share.
inline constexpr off_t kMostLockBytes = 4096;

// The lock files of a store as one job sees them: regular files whose names are locks by the
// profile belong to the base, one inode for all jobs and for processes beside the mount, open to
// every uid. They are never copied, never published, and may exist before their directory's entry
// does. Files of class `shared` also belong to the base; they may have any size, and a rename of
// another shared name may replace them.
//
// Thread-safe. Paths are as in paths.h; an object that is not a regular file is not a lock,
// whatever its name.
class LockFiles {
 public:
  // `entries` must outlive the object.
  explicit LockFiles(const EntryMap& entries) : entries_(entries) {}

  // From now on the lock files belong to `base`, a writable directory that stays open; -1: they are
  // ordinary files of the layer. `staging` is a directory on the base's file system, for files that
  // are on their way into the base. `access` must outlive this object, and defines which users may
  // lock a lock file beside the mount.
  void share(int base, const LockAccess* access = nullptr, int staging = -1) {
    if (access != nullptr) access_ = access;
    staging_ = staging;
    base_ = base;
  }
  // Whether a regular file of this name is, or would be, a file of the base.
  bool is_shared_name(std::string_view path) const {
    return base_ >= 0 && entries_.is_common(path);
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
  // Creates the file and the directories above it, or, without O_EXCL, opens the existing one. A
  // hidden file becomes visible again and counts as created. Errors: EEXIST.
  Result<Made> create(const std::string& path, int flags);
  Status remove(const std::string& path) const;
  // Replaces an existing file with the file `name` of `directory`, which is on the base's file system.
  Status replace(const std::string& path, int directory, const std::string& name) const;
  // Both names must be lock files, or both of class `shared`. Errors: EXDEV otherwise.
  Status rename(const std::string& from, const std::string& to, unsigned flags);

  // rename_in() and link_in() give a file of the layer the name of a lock file. rename_out() and
  // link_out() give a lock file the name `name` in `directory`, a directory of the layer. The
  // object stays the same, and with it the locks that are held on it. rename_in() copies the file
  // if `directory` is on another file system, and returns an O_PATH descriptor of the object that
  // got the name; other processes may have removed the name by then. Errors: EXDEV from the other
  // functions if `directory` is on another file system, and for names of class `shared`; EFBIG for
  // a file that is too large; EEXIST.
  Result<UniqueFd> rename_in(int directory, const std::string& name, const std::string& path,
                             unsigned flags);
  Status rename_out(const std::string& path, int directory, const std::string& name) const;
  Status link_in(int object, const std::string& path);  // `object`: any descriptor of the file
  Status link_out(const std::string& path, int directory, const std::string& name) const;
  Status link(const std::string& path, const std::string& new_path);
  // Hides the file only in this job's view, until it is created again or shown.
  void hide(const std::string& path);
  void show(const std::string& path);
  std::vector<std::string> hidden_directories() const;

  // Whether open_named() and ensure_named() accept this name.
  bool may_become_lock(const std::string& path) const {
    return base_ >= 0 && entries_.may_become_lock(path);
  }
  // open_named() and find_named() return the base's file that takes the locks of `path`, a small
  // `*.lock` in a cache without a profile, or a baton. open_named() returns an O_PATH descriptor.
  // The file for a baton is among the store's leases: with the baton's own name, processes that use
  // the base without a mount would wait for it, since a baton excludes by existing. Errors: ENOENT
  // if there is none, and for other names; EFBIG for a larger file; EISDIR; EACCES for one that the
  // daemon cannot write to.
  Result<UniqueFd> open_named(const std::string& path) const;
  Result<Object> find_named(const std::string& path) const { return find(place_of_named(path)); }
  // As open_named(), but creates the file, empty, and the directories above it. LockAccess defines
  // which users may open it.
  Result<UniqueFd> ensure_named(const std::string& path) const;

  // Adjusts a listing of `directory`: removes hidden lock files and, if the layer hides the base
  // (`base_is_hidden`), adds the base's lock files.
  void adjust(const std::string& directory, bool base_is_hidden,
              std::vector<sys::DirEntry>& listed) const;

 private:
  bool is_hidden(const std::string& path) const;
  std::string place_of_named(const std::string& path) const;
  // Removes access for users who may not lock the file beside the mount.
  void restrict(int object) const;
  Status ensure_directory(const std::string& path) const;
  Result<UniqueFd> open_parent(const std::string& path) const;
  Result<UniqueFd> ensure_parent(const std::string& path) const;
  Status check_becomes_lock(const struct stat& st, const std::string& path) const;
  Status settle_arrival(int object, const std::string& path, const Status& named);
  Result<UniqueFd> copy_in(int directory, const std::string& name, const std::string& path,
                           unsigned flags) const;

  const EntryMap& entries_;
  static const LockAccess& open_to_all();
  std::atomic<int> base_{-1};
  std::atomic<int> staging_{-1};
  std::atomic<const LockAccess*> access_{&open_to_all()};
  std::atomic<bool> hides_some_{false};
  mutable Mutex mutex_;
  std::set<std::string> hidden_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
