// SPDX-License-Identifier: Apache-2.0
#pragma once

// Declares libc's functions under their symbol names. Include this file first in every file that
// defines or names an interposed function. Undefines _FILE_OFFSET_BITS, because Meson sets it to 64,
// which would rename a definition of open to open64. Undefines _FORTIFY_SOURCE, because it replaces
// functions with inline bodies.
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS
#undef _FORTIFY_SOURCE

// libc's headers promise the compiler that no path is null. A hook compiled with that promise would
// crash where the kernel returns EFAULT, and g++ 12 relies on the promise even with
// -fno-delete-null-pointer-checks.
#include <features.h>
#undef __nonnull
#define __nonnull(parameters)
// Some programs still call deprecated functions, so the library defines hooks for them.
#undef __attribute_deprecated__
#define __attribute_deprecated__

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

// libc exports these functions for programs that were built with an older libc, or for its own
// macros. libc's headers do not declare them, or no longer do.
extern "C" {
int __open(const char* path, int flags, ...);
int __open64(const char* path, int flags, ...);
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int dirfd, const char* path, int flags);
int __openat64_2(int dirfd, const char* path, int flags);
int __fxstat(int version, int fd, struct stat* out) noexcept;
int __fxstat64(int version, int fd, struct stat64* out) noexcept;
int __xstat(int version, const char* path, struct stat* out) noexcept;
int __xstat64(int version, const char* path, struct stat64* out) noexcept;
int __lxstat(int version, const char* path, struct stat* out) noexcept;
int __lxstat64(int version, const char* path, struct stat64* out) noexcept;
int __fxstatat(int version, int dirfd, const char* path, struct stat* out, int flags) noexcept;
int __fxstatat64(int version, int dirfd, const char* path, struct stat64* out, int flags) noexcept;
int __close(int fd);
int __dup2(int fd, int wanted) noexcept;
int __statfs(const char* path, struct statfs* out) noexcept;
int pivot_root(const char* root, const char* old) noexcept;
int __xmknod(int version, const char* path, mode_t mode, dev_t* device) noexcept;
int __xmknodat(int version, int dirfd, const char* path, mode_t mode, dev_t* device) noexcept;
ssize_t __readlink_chk(const char* path, char* out, size_t size, size_t room) noexcept;
ssize_t __readlinkat_chk(int dirfd, const char* path, char* out, size_t size, size_t room) noexcept;
char* __realpath_chk(const char* path, char* out, size_t room) noexcept;
char* __getcwd_chk(char* out, size_t size, size_t room) noexcept;
char* __getwd_chk(char* out, size_t room) noexcept;
#if !__GLIBC_PREREQ(2, 34)  // the library also works with a newer libc than the one that it was built for
int close_range(unsigned first, unsigned last, int flags) noexcept;
#endif
}

namespace cacheshim {

// The version argument of glibc's old stat functions, which every glibc still exports.
#if defined(__x86_64__)
inline constexpr int kStatVersion = 1;
#else
inline constexpr int kStatVersion = 0;
#endif
// Whether a stat function called with this version writes the current struct stat. On x86_64, it does so for versions 0
// and 1.
inline constexpr bool is_stat_version(int version) {
  return version >= 0 && version <= kStatVersion;
}

}  // namespace cacheshim
