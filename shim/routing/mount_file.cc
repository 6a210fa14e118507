// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/routing/mount_file.h"

#include <sys/sysmacros.h>

#include "common/direct_page.h"
#include "common/names.h"
#include "common/unique_fd.h"
#include "shim/start/process_files.h"
#include "shim/start/trusted_paths.h"

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x00002000  // Linux 5.8
#endif

namespace cacheshim {
namespace {

Result<std::size_t> read_some(int fd, char* out, std::size_t capacity) {
  for (;;) {
    const ssize_t got = ::read(fd, out, capacity);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) return Errno::last();
  }
}

std::optional<uid_t> owner_of(const char* path) {
  struct statx st;
  if (real::statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_UID, &st) != 0) return std::nullopt;
  return st.stx_uid;
}

}  // namespace

Result<MountState> read_mount_state(std::string_view path) {
  const UniqueFd fd(real::open(mountinfo_path(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Errno::last();
  MountScanner scanner(path);
  for (;;) {
    char piece[4096];
    CACHESHIM_TRY(got, read_some(fd.get(), piece, sizeof piece));
    if (got == 0) break;
    scanner.feed({piece, got});
  }
  MountState found = scanner.finish();
  if (found.kind != MountKind::kNone && !may_use_mount(path, found.owner)) {
    found.kind = MountKind::kForbidden;
  }
  return found;
}

std::optional<MountState> probe_mount(std::string_view path, std::string_view run_directory) {
  PathBuffer name;
  if (join_path(name, {run_directory, "/", kStateFile}) == 0) return std::nullopt;
  const UniqueFd fd(real::open(name.text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return std::nullopt;
  alignas(MountPage) char bytes[512];
  const Result<std::size_t> got = read_some(fd.get(), bytes, sizeof bytes);
  const MountPage* const page = got ? mount_page_over(bytes, *got) : nullptr;
  if (page == nullptr || !is_alive(alive_word(page, page->alive_offset))) return std::nullopt;

  // A kernel that reports mount roots also honors AT_STATX_DONT_SYNC for FUSE; an older one may not.
  struct statx st;
  if (real::statx(fd.get(), "", AT_EMPTY_PATH, STATX_TYPE, &st) != 0 ||
      (st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) == 0) {
    return std::nullopt;
  }
  const auto found = stat_mount_root(path);
  if (!found || ::gnu_dev_makedev(found->major, found->minor) != page->device) return std::nullopt;
  return found;
}

std::optional<MountState> stat_mount_root(std::string_view path) {
  constexpr int kNoServerSync = AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
  PathBuffer name;
  struct statx st;
  if (join_path(name, {path}) == 0 ||
      real::statx(AT_FDCWD, name.text, kNoServerSync, STATX_INO, &st) != 0 ||
      (st.stx_mask & STATX_INO) == 0 || (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0) {
    return std::nullopt;
  }
  const bool is_whole = st.stx_ino == kMountRootInode || st.stx_ino == kKernelRootInode;
  if (!is_whole) return std::nullopt;
  return MountState{MountKind::kWhole, st.stx_dev_major, st.stx_dev_minor};
}

std::size_t run_directory_of(std::string_view path, std::string_view run_base, PathBuffer& out) {
  PathBuffer escaped;
  const std::size_t size = escape_mount_path(path, escaped.text, sizeof escaped.text);
  if (size == 0) return 0;
  return join_path(out, {run_base, "/", kRunDirName, "/", {escaped.text, size}});
}

// The daemon's user owns the counters directory and, until a user uses a view, also the view's counters file.
std::optional<uid_t> owner_of_view(std::string_view run_directory, std::string_view job) {
  PathBuffer path;
  if (join_path(path, {run_directory, "/", kCountersDirectory, "/", job}) == 0) return std::nullopt;
  const auto owner = owner_of(path.text);
  if (!owner || join_path(path, {run_directory, "/", kCountersDirectory}) == 0) return std::nullopt;
  return owner_of(path.text) == owner ? std::nullopt : owner;
}

Result<std::size_t> read_file(const char* path, char* out, std::size_t capacity) {
  const UniqueFd fd(real::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return Errno::last();
  std::size_t length = 0;
  while (length < capacity) {
    CACHESHIM_TRY(got, read_some(fd.get(), out + length, capacity - length));
    if (got == 0) return length;
    length += got;
  }
  return Errno(EFBIG);
}

}  // namespace cacheshim
