// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/plain_libc.h"

#include <cstring>

#include "common/unique_fd.h"
#include "shim/direct/direct_view.h"

// Makes a directly opened descriptor behave like a descriptor of the mount: its attributes are the
// view's, and locks and changes go to the view.
//
// The library recognizes a directly opened descriptor by the mount ID that statx reports, even after dup, fork and
// exec. A hook of fstat calls fstat first, and calls statx only if the file is on the base's device. But if a
// descriptor with this number was opened directly (is_noted()), and the output buffer is on the stack
// (is_near_stack()), the hook calls statx first: statx takes as long as fstat, and makes the call of fstat unnecessary.
namespace cacheshim::direct {

void note_descriptor(int fd);
bool is_noted(int fd);

// If the descriptor refers to an object of the base, writes the attributes that the view shows to
// `out`, and returns true. Leaves errno unchanged.
bool stat_descriptor(const View& view, int fd, struct stat& out);

// Convert a result of fstat(2) or statx(2) for `fd` to the view's attributes, if `fd` refers to an
// object of the base.
void show_descriptor(int fd, struct stat& st);
void show_descriptor(int fd, struct statx& st);

// Whether an *at call with these arguments acts on its descriptor itself. Since Linux 6.11 the
// kernel treats a null path as an empty one.
inline bool is_of_descriptor(const char* path, long flags) {
  return (flags & AT_EMPTY_PATH) != 0 && (path == nullptr || *path == '\0');
}

// Converts the kernel's path of an object in the bind-mounted base to the object's path in the view.
// Returns null for all other paths, and if the result does not fit into `out`.
const char* path_in_view(const char* name, PathBuffer& out);

// If the descriptor refers to an object of the base that still has its name in the view, opens the
// object again through the mount, with the same flags and O_CLOEXEC. Otherwise returns an empty
// descriptor. Leaves errno unchanged.
UniqueFd open_in_view(int fd);
// As open_in_view(), but replaces `fd` with the new descriptor, at the same offset. Returns true on
// success.
bool leave_base(int fd);

// Whether this command of fcntl(2) sets or tests a lock, or sets a kernel lease.
bool is_lock(int command);

// Returns true if the address is within 64 KiB above this stack frame, and therefore most likely in
// a caller's frame. Any other address may be invalid, and only the kernel can determine that.
inline bool is_near_stack(const void* place) {
  constexpr std::uintptr_t kNear = 64 * 1024;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return reinterpret_cast<std::uintptr_t>(place) - here < kNear;
}

// The body of the hooks of fstat(2): writes the attributes that the view shows. `call` calls libc's
// function.
template <class Stat, class Call>
int fstat_as_view(int fd, Stat* out, Call call) {
  static_assert(sizeof(Stat) == sizeof(struct stat));  // struct stat64 has the same layout
  const View* const view = last_view();
  if (view == nullptr || out == nullptr) [[likely]]
    return call();
  struct stat shown;
  if (!is_noted(fd) || !is_near_stack(out)) {
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
