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

// The folder that the preloaded library (routes, filters, the bound base) and `cacheshim unmount` (the
// lock) look for while the daemon lives. Gone with it, log and all, when it ends well; a daemon that
// dies leaves its log, and the next one of this mount replaces the rest.
class RunFolder {
 public:
  // An empty `path` makes nothing. `lock` is the folder's lock where the caller holds it already; empty
  // `routes` are those of a plain overlay, which has none. Errors: EWOULDBLOCK where a living daemon has
  // the folder, EPERM where somebody else could change what is in it.
  static Result<RunFolder> make(const std::string& path, UniqueFd lock, const std::string& routes,
                                const std::string& cuda_defaults);
  RunFolder(RunFolder&& other) noexcept;
  ~RunFolder();

  // For direct opens: binds the base, an open folder, read-only and without symlinks, and makes the
  // folders of filters and counters. Errors: EPERM without privilege over the mount namespace.
  Status offer_base(int base, const std::vector<Profile>& profiles);
  // What offer_base() has made, or null. Lives as long as this.
  const DirectFolders* direct() const { return direct_ ? direct_.get() : nullptr; }
  // The mount of this device is there. To be called by the thread that ends last, which from then on
  // stands for the daemon's life.
  Status announce(dev_t mount_device);
  // From now on jobs open everything through the mount, what they know notwithstanding. For the same thread.
  void end_direct_opens();

 private:
  RunFolder() = default;
  void withdraw();
  std::string base_path() const { return path_ + "/base"; }

  std::string path_;
  UniqueFd folder_;
  UniqueFd lock_;
  dev_t base_device_ = 0;
  ino_t base_inode_ = 0;
  std::unique_ptr<DirectFolders> direct_;
  MappedFile state_;
  pthread_mutex_t* alive_ = nullptr;
};

// st_dev of the files of what is mounted at `path`, without a word to the file system itself.
Result<dev_t> device_of_mount(const std::string& path);

}  // namespace cacheshim
