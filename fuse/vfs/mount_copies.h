// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

namespace cacheshim {

// Private copies of the mounts that the directories of an overlay are on, as overlayfs makes them. An
// overlay opens its directories through them in two cases.
// 1. It is mounted with noatime, strictatime or nodiratime. The kernel leaves the access times of a FUSE
//    file system to its daemon, whose reads (and those of passthrough files, which the kernel does itself)
//    set them by the rules of the mount through which the file is open.
// 2. Its mount point lies in a lower directory: the overlay would see itself there, without end.
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
  // Whether the flags ask for something that the mounts of the directories do not decide.
  bool have_atimes() const { return atimes_ != 0; }

  // Opens the directory again, with what is mounted below it. Errors: EPERM without privilege over the mount
  // namespace, ENOSYS before Linux 5.12.
  Result<UniqueFd> reopen(const Directory& directory);
  // The same for two directories on one mount, so that files can be renamed from one to the other.
  // Errors: also EXDEV if they are not on one.
  Result<std::pair<UniqueFd, UniqueFd>> reopen_both(const Directory& one, const Directory& other);

 private:
  Result<int> copy_mount(const std::string& top, unsigned recursive);

  std::uint64_t atimes_ = 0;  // MOUNT_ATTR_*
  bool is_apart_ = false;
  std::vector<UniqueFd> copies_;
};

}  // namespace cacheshim
