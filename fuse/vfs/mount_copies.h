// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

namespace cacheshim {

// Private copies of the mounts that contain an overlay's directories, as overlayfs makes them. An overlay opens its
// directories through these copies in two cases:
// 1. The overlay is mounted with noatime, strictatime or nodiratime. The kernel does not apply these flags to a FUSE
//    file system: it leaves the access times to the daemon. When the daemon, or the kernel for passthrough, reads a
//    backing file, the flags of the mount through which the file was opened decide whether its access time changes.
// 2. The overlay's mount point lies in a lower directory. Without the copies, the overlay would contain itself
//    recursively.
class MountCopies {
 public:
  struct Directory {
    std::string path;  // absolute, without symlinks
    int fd;
  };

  MountCopies() = default;
  // `mount_flags`: MS_*. `is_apart`: the copies do not follow later mounts and unmounts of the originals.
  MountCopies(unsigned long mount_flags, bool is_apart);

  bool are_needed() const { return have_atimes() || is_apart_; }
  // Whether the mount flags include noatime, strictatime or nodiratime.
  bool have_atimes() const { return atimes_ != 0; }

  // Opens the directory again, with the mounts below it. Errors: EPERM without privilege over the mount
  // namespace, ENOSYS before Linux 5.12.
  Result<UniqueFd> reopen(const Directory& directory);
  // As reopen(), for two directories on one mount and without the mounts below them, so that files can be renamed
  // between the two. Errors: also EXDEV if they are on different mounts.
  Result<std::pair<UniqueFd, UniqueFd>> reopen_both(const Directory& one, const Directory& other);

 private:
  Result<int> copy_mount(const std::string& top, unsigned recursive);

  std::uint64_t atimes_ = 0;  // MOUNT_ATTR_*
  bool is_apart_ = false;
  std::vector<UniqueFd> copies_;
};

}  // namespace cacheshim
