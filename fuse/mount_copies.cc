// SPDX-License-Identifier: Apache-2.0
#include "fuse/mount_copies.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "store/sys.h"

namespace cacheshim {
namespace {

namespace fs = std::filesystem;

Result<std::uint64_t> mount_id(int fd) {
  struct statx st {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) == -1) return Errno::last();
  if ((st.stx_mask & STATX_MNT_ID) == 0) return Errno(ENOSYS);
  return st.stx_mnt_id;
}

fs::path common_part(const fs::path& one, const fs::path& other) {
  const auto end = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
  fs::path common;
  for (auto at = one.begin(); at != end; ++at) common /= *at;
  return common;
}

}  // namespace

MountCopies::MountCopies(unsigned long mount_flags, bool is_apart) : is_apart_(is_apart) {
  if ((mount_flags & MS_NOATIME) != 0) atimes_ |= MOUNT_ATTR_NOATIME;
  if ((mount_flags & MS_STRICTATIME) != 0) atimes_ |= MOUNT_ATTR_STRICTATIME;
  if ((mount_flags & MS_NODIRATIME) != 0) atimes_ |= MOUNT_ATTR_NODIRATIME;
}

Result<int> MountCopies::copy_mount(int folder, unsigned recursive) {
  const int tree =
      ::open_tree(folder, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | recursive);
  if (tree == -1) return Errno::last();
  UniqueFd copy(tree);
  struct mount_attr change {};
  change.attr_set = atimes_;
  // The kernel takes these three for one value, which has to be cleared as a whole.
  const bool chooses = (atimes_ & (MOUNT_ATTR_NOATIME | MOUNT_ATTR_STRICTATIME)) != 0;
  change.attr_clr = chooses ? MOUNT_ATTR__ATIME : 0;
  change.propagation = is_apart_ ? MS_PRIVATE : MS_SLAVE;  // what is unmounted there goes here too
  if (::mount_setattr(tree, "", AT_EMPTY_PATH | recursive, &change, sizeof change) == -1) {
    return Errno::last();
  }
  copies_.push_back(std::move(copy));
  return tree;
}

Result<UniqueFd> MountCopies::reopen(int folder) {
  CACHESHIM_TRY(copy, copy_mount(folder, AT_RECURSIVE));
  return sys::open_beneath(copy, "", O_RDONLY | O_DIRECTORY);
}

Result<std::pair<UniqueFd, UniqueFd>> MountCopies::reopen_both(const Folder& one,
                                                               const Folder& other) {
  CACHESHIM_TRY(one_mount, mount_id(one.fd));
  CACHESHIM_TRY(other_mount, mount_id(other.fd));
  if (one_mount != other_mount) return Errno(EXDEV);
  const fs::path above = common_part(one.path, other.path);
  CACHESHIM_TRY(common, sys::open_path(above, O_RDONLY | O_DIRECTORY));
  CACHESHIM_TRY(copy, copy_mount(common.get(), 0));
  const auto open_again = [&](const Folder& folder) {
    const std::string below = fs::path(folder.path).lexically_relative(above);
    return sys::open_beneath(copy, below, O_RDONLY | O_DIRECTORY);
  };
  CACHESHIM_TRY(first, open_again(one));
  CACHESHIM_TRY(second, open_again(other));
  return std::pair(std::move(first), std::move(second));
}

}  // namespace cacheshim
