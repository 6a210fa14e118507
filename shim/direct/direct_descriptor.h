// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/plain_libc.h"

#include <cstring>

#include "common/unique_fd.h"
#include "shim/direct/direct_view.h"

// Descriptors of directly opened files, which are shown as the view shows their files.
//
// Such a descriptor is known by the mount that it was opened on, whatever became of it since (dup, fork,
// exec), and that is asked only where it is of the base's device. statx says which mount it is and costs
// what fstat does; it comes first for numbers that were opened directly.
namespace cacheshim::direct {

void note_descriptor(int fd);
bool is_noted(int fd);

// Whether the descriptor is of the base; `out` is then what the view shows. errno stays.
bool stat_descriptor(const View& view, int fd, struct stat& out);

// The same of what fstat(2) or statx(2) has told of a descriptor.
void show_descriptor(int fd, struct stat& st);
void show_descriptor(int fd, struct statx& st);

// Whether a call of the ...at kind is one on the descriptor itself. The kernel takes a null path for an empty
// one since Linux 6.11.
inline bool is_of_descriptor(const char* path, long flags) {
  return (flags & AT_EMPTY_PATH) != 0 && (path == nullptr || *path == '\0');
}

// The kernel's name of something in the bound base, as the view's; null for all other names.
const char* path_in_view(const char* name, PathBuffer& out);

// If the descriptor is of the base: opens the file or directory again by way of the mount, with the same flags,
// where it is the view's still. Else empty. errno stays.
UniqueFd open_in_view(int fd);
// The same under the same number and at the same offset. Returns whether it has happened.
bool leave_base(int fd);

// Whether fcntl(2) has to do with locks by this command.
bool is_lock(int command);

// Whether this is in one of the frames that led here, most likely. What is elsewhere may be nowhere: only
// the kernel can tell.
inline bool is_of_callers(const void* place) {
  constexpr std::uintptr_t kNear = 64 * 1024;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return reinterpret_cast<std::uintptr_t>(place) - here < kNear;
}

// What fstat(2) is to return, where `call` is libc's.
template <class Stat, class Call>
int fstat_as_view(int fd, Stat* out, Call call) {
  static_assert(sizeof(Stat) == sizeof(struct stat));  // stat64 is the same
  const View* const view = last_view();
  if (view == nullptr || out == nullptr) [[likely]]
    return call();
  struct stat shown;
  if (!is_noted(fd) || !is_of_callers(out)) {
    const int result = call();
    if (result != 0 || out->st_dev != view->base_device) return result;
    if (stat_descriptor(*view, fd, shown))
      std::memcpy(static_cast<void*>(out), &shown, sizeof shown);
    return result;
  }
  if (!stat_descriptor(*view, fd, shown)) return call();
  std::memcpy(static_cast<void*>(out), &shown, sizeof shown);
  return 0;
}

}  // namespace cacheshim::direct
