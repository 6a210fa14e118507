// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

// System calls for which glibc 2.28, the oldest that cacheshim supports, has no functions. Arguments, results and errno
// are as in the calls' man pages. Thread-safe.
namespace cacheshim::sys {

inline int open_tree(int dir, const char* path, unsigned flags) {
  return static_cast<int>(::syscall(SYS_open_tree, dir, path, flags));
}
inline int move_mount(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  return static_cast<int>(::syscall(SYS_move_mount, from_dir, from, to_dir, to, flags));
}
inline int mount_setattr(int dir, const char* path, unsigned flags, mount_attr* change,
                         std::size_t size) {
  return static_cast<int>(::syscall(SYS_mount_setattr, dir, path, flags, change, size));
}
inline int fsopen(const char* type, unsigned flags) {
  return static_cast<int>(::syscall(SYS_fsopen, type, flags));
}
inline int fsconfig(int context, unsigned command, const char* key, const void* value, int aux) {
  return static_cast<int>(::syscall(SYS_fsconfig, context, command, key, value, aux));
}
inline int fsmount(int context, unsigned flags, unsigned attributes) {
  return static_cast<int>(::syscall(SYS_fsmount, context, flags, attributes));
}
inline int close_range(unsigned first, unsigned last, int flags) {
  return static_cast<int>(::syscall(SYS_close_range, first, last, flags));
}
inline ssize_t getdents64(int dir, void* block, std::size_t size) {
  return ::syscall(SYS_getdents64, dir, block, size);
}
inline pid_t gettid() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

}  // namespace cacheshim::sys
