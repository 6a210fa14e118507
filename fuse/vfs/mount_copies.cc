// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/mount_copies.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "common/mount_info.h"
#include "store/sys/sys.h"
#include "store/sys/system_calls.h"

namespace cacheshim {
namespace {

namespace fs = std::filesystem;

Result<std::uint64_t> mount_id(int fd) {
  struct statx st {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) == -1) return Errno::last();
  if ((st.stx_mask & STATX_MNT_ID) == 0) return Errno(ENOSYS);
  return st.stx_mnt_id;
}

// Returns the root of the mount that contains the directory. The copy must begin there: in a copy
// that begins at the directory itself, BaseWatch could not distinguish objects outside the
// directory from objects below it.
Result<fs::path> top_of_mount(const MountCopies::Directory& directory) {
  CACHESHIM_TRY(mount, mount_id(directory.fd));
  fs::path top = directory.path;
  while (top != top.parent_path()) {
    CACHESHIM_TRY(above, sys::open_path(top.parent_path(), O_PATH | O_DIRECTORY));
    CACHESHIM_TRY(above_mount, mount_id(above.get()));
    if (above_mount != mount) break;
    top = top.parent_path();
  }
  return top;
}

bool has_mounts_below(const std::string& path) {
  const std::string prefix = path == "/" ? path : path + "/";
  const auto mounts = read_mounts();
  return std::any_of(mounts.begin(), mounts.end(),
                     [&](const MountEntry& mount) { return mount.path.starts_with(prefix); });
}

fs::path common_part(const fs::path& one, const fs::path& other) {
  const auto end = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
  fs::path common;
  for (auto at = one.begin(); at != end; ++at) common /= *at;
  return common;
}

// Opens `path`, which lies below `top`, through `copy`, a copy of the mount that begins at `top`.
Result<UniqueFd> open_below(int copy, const fs::path& top, const fs::path& path) {
  return sys::open_beneath(copy, path.lexically_relative(top).string(), O_RDONLY | O_DIRECTORY);
}

}  // namespace

MountCopies::MountCopies(unsigned long mount_flags, bool is_apart) : is_apart_(is_apart) {
  if ((mount_flags & MS_NOATIME) != 0) atimes_ |= MOUNT_ATTR_NOATIME;
  if ((mount_flags & MS_STRICTATIME) != 0) atimes_ |= MOUNT_ATTR_STRICTATIME;
  if ((mount_flags & MS_NODIRATIME) != 0) atimes_ |= MOUNT_ATTR_NODIRATIME;
}

Result<int> MountCopies::copy_mount(const std::string& top, unsigned recursive) {
  const int tree =
      sys::open_tree(AT_FDCWD, top.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | recursive);
  if (tree == -1) return Errno::last();
  UniqueFd copy(tree);
  struct mount_attr change {};
  change.attr_set = atimes_;
  // noatime, relatime and strictatime are values of one field, which must be cleared as a whole.
  const bool chooses = (atimes_ & (MOUNT_ATTR_NOATIME | MOUNT_ATTR_STRICTATIME)) != 0;
  change.attr_clr = chooses ? MOUNT_ATTR__ATIME : 0;
  change.propagation = is_apart_ ? MS_PRIVATE : MS_SLAVE;  // a slave follows unmounts of the originals
  if (sys::mount_setattr(tree, "", AT_EMPTY_PATH | recursive, &change, sizeof change) == -1) {
    return Errno::last();
  }
  copies_.push_back(std::move(copy));
  return tree;
}

Result<UniqueFd> MountCopies::reopen(const Directory& directory) {
  CACHESHIM_TRY(top, top_of_mount(directory));
  CACHESHIM_TRY(copy, copy_mount(top, has_mounts_below(directory.path) ? AT_RECURSIVE : 0));
  return open_below(copy, top, directory.path);
}

Result<std::pair<UniqueFd, UniqueFd>> MountCopies::reopen_both(const Directory& one,
                                                               const Directory& other) {
  CACHESHIM_TRY(one_mount, mount_id(one.fd));
  CACHESHIM_TRY(other_mount, mount_id(other.fd));
  if (one_mount != other_mount) return Errno(EXDEV);
  const fs::path above = common_part(one.path, other.path);
  CACHESHIM_TRY(copy, copy_mount(above, 0));
  CACHESHIM_TRY(first, open_below(copy, above, one.path));
  CACHESHIM_TRY(second, open_below(copy, above, other.path));
  return std::pair(std::move(first), std::move(second));
}

}  // namespace cacheshim
