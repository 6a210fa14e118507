// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "fuse/jobs/mapped_file.h"
#include "fuse/jobs/view_filter.h"
#include "store/profiles/profile.h"

namespace cacheshim {

// The run directory, through which processes find the daemon while it lives. The preloaded library
// reads the routes, the filters and the bound base there; `cacheshim unmount` checks the lock. A
// daemon that exits cleanly removes the directory together with the log. A daemon that dies leaves
// both; the mount's next daemon keeps the log and replaces all other files.
class RunDirectory {
 public:
  // Creates nothing if `path` is empty. `lock` is the directory's lock if the caller already holds
  // it. `routes` is empty for a plain overlay. Errors: EWOULDBLOCK if a living daemon uses the
  // directory, EPERM if another user could change its contents or replace it.
  static Result<RunDirectory> make(const std::string& path, UniqueFd lock,
                                   const std::string& routes, const std::string& cuda_defaults);
  RunDirectory(RunDirectory&& other) noexcept;
  ~RunDirectory();

  // For direct opens: bind-mounts `base`, an open directory, read-only and nosymfollow, and creates
  // the directories for filters and counters. Errors: EPERM without privilege over the mount
  // namespace.
  Status offer_base(int base, const std::vector<Profile>& profiles);
  // Returns the data that offer_base() has made for direct answers; null if it has made none. They live as long as this
  // object.
  const DirectAccess* direct() const { return direct_ ? direct_.get() : nullptr; }
  // Announces the mount with this device number. Call in the thread that exits last: the library
  // treats the exit of this thread as the exit of the daemon.
  Status announce(dev_t mount_device);
  // Ends direct opens: from then on, jobs open all files through the mount, even in processes that have already mapped
  // a filter. Call in the thread that has called announce().
  void end_direct_opens();

 private:
  RunDirectory() = default;
  void withdraw();
  std::string base_path() const { return path_ + "/base"; }

  std::string path_;
  UniqueFd directory_;
  UniqueFd lock_;
  dev_t base_device_ = 0;
  bool is_base_local_ = true;
  ino_t base_inode_ = 0;
  std::unique_ptr<DirectAccess> direct_;
  MappedFile state_;
  pthread_mutex_t* alive_ = nullptr;
};

// Returns st_dev of the files of the mount at `path`, without a request to the file system itself.
Result<dev_t> device_of_mount(const std::string& path);

}  // namespace cacheshim
