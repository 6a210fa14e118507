// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/direct/direct_descriptor.h"

#include <sys/sysmacros.h>

#include "shim/direct/direct.h"
#include "shim/direct/fd_link.h"
#include "shim/errno_guard.h"
#include "shim/routing/stale_name.h"
#include "shim/runtime.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x00001000U  // Linux 5.8
#endif

namespace cacheshim::direct {
namespace {

// One bit for each descriptor that was opened directly. The bits are only hints: a bit remains set
// after its descriptor is closed.
constexpr unsigned kNoted = 1024;
constinit std::atomic<std::uint64_t> noted[kNoted / 64] = {};

timespec to_timespec(const struct statx_timestamp& time) {
  return {.tv_sec = time.tv_sec, .tv_nsec = time.tv_nsec};
}

void fill(struct stat& out, const struct statx& st) {
  std::memset(&out, 0, sizeof out);
  out.st_ino = st.stx_ino;
  out.st_nlink = st.stx_nlink;
  out.st_mode = st.stx_mode;
  out.st_rdev = ::gnu_dev_makedev(st.stx_rdev_major, st.stx_rdev_minor);
  out.st_size = static_cast<off_t>(st.stx_size);
  out.st_blksize = static_cast<decltype(out.st_blksize)>(st.stx_blksize);
  out.st_blocks = static_cast<blkcnt_t>(st.stx_blocks);
  out.st_atim = to_timespec(st.stx_atime);
  out.st_mtim = to_timespec(st.stx_mtime);
  out.st_ctim = to_timespec(st.stx_ctime);
}

}  // namespace

void note_descriptor(int fd) {
  const auto number = static_cast<unsigned>(fd);
  if (number >= kNoted || is_noted(fd)) return;
  noted[number / 64].fetch_or(std::uint64_t{1} << (number % 64), std::memory_order_relaxed);
}

bool is_noted(int fd) {
  const auto number = static_cast<unsigned>(fd);
  if (number >= kNoted) return false;
  return (noted[number / 64].load(std::memory_order_relaxed) >> (number % 64) & 1) != 0;
}

void show_descriptor(int fd, struct stat& st) {
  const View* const view = last_view();
  struct stat shown;
  if (view != nullptr && st.st_dev == view->base_device && stat_descriptor(*view, fd, shown)) {
    st = shown;
  }
}

void show_descriptor(int fd, struct statx& st) {
  const View* const view = last_view();
  if (view == nullptr) return;
  struct stat shown;
  if (::gnu_dev_makedev(st.stx_dev_major, st.stx_dev_minor) == view->base_device &&
      stat_descriptor(*view, fd, shown)) {
    show_as_view(*view, st);
  }
}

bool stat_descriptor(const View& view, int fd, struct stat& out) {
  const ErrnoGuard errno_guard;
  struct statx st;
  if (real::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) != 0 ||
      (st.stx_mask & STATX_MNT_ID) == 0 || st.stx_mnt_id != view.base_mount) {
    return false;
  }
  fill(out, st);
  show_as_view(view, out);
  return true;
}

UniqueFd open_in_view(int fd) {
  const View* const view = last_view();
  struct stat base;
  if (view == nullptr || !stat_descriptor(*view, fd, base)) return {};
  const ErrnoGuard errno_guard;
  PathBuffer name;
  PathBuffer path;
  FdLink link;
  const ssize_t got =
      real::readlink(link.name("/proc/self/fd/", fd), name.text, sizeof name.text - 1);
  if (got <= 0) return {};
  name.text[got] = '\0';
  if (path_in_view(name.text, path) == nullptr) return {};
  const int flags = real::fcntl(fd, F_GETFL, nullptr);
  const auto open = [&] { return real::open(path.text, flags | O_CLOEXEC | O_NOFOLLOW); };
  UniqueFd again(open());
  if (!again && errno == ENOENT && refresh_stale_name(path.text, CallKind::kLookup)) {
    again.reset(open());
  }
  struct stat seen;
  if (!again || real::__fxstat(kStatVersion, again.get(), &seen) != 0 ||
      seen.st_ino != base.st_ino || seen.st_dev != base.st_dev) {
    return {};
  }
  return again;
}

// Duplicates of `fd` under other numbers, and copies that other processes have inherited, still refer to the base's
// file. The dup3(2) onto `fd` closes a descriptor of that file, which releases this process's record locks on the file.
// Nothing can prevent this release, because only dup2(2) and dup3(2) give an open file a chosen number.
bool leave_base(int fd) {
  const UniqueFd again = open_in_view(fd);
  if (!again) return false;
  const ErrnoGuard errno_guard;
  (void)::lseek(again.get(), ::lseek(fd, 0, SEEK_CUR), SEEK_SET);
  const bool on_exec = (real::fcntl(fd, F_GETFD, nullptr) & FD_CLOEXEC) != 0;
  return real::dup3(again.get(), fd, on_exec ? O_CLOEXEC : 0) == fd;
}

bool is_lock(int command) {
  switch (command) {
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
    case F_SETLEASE:
      return true;
    default:
      return false;
  }
}

const char* path_in_view(const char* name, PathBuffer& out) {
  const View* const view = last_view();
  const std::string_view mounted = runtime::routes().view();
  if (view == nullptr || mounted.empty()) return nullptr;
  if (std::strncmp(name, view->base, view->base_length) != 0 || name[view->base_length] != '/') {
    return nullptr;
  }
  return join_path(out, {mounted, name + view->base_length}) == 0 ? nullptr : out.text;
}

}  // namespace cacheshim::direct
