// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include "shim/routed_call.h"

using cacheshim::call_routed;
namespace real = cacheshim::real;

namespace {

template <class Call>
auto look(const char* path, Call call) {
  return call_routed({AT_FDCWD, path}, cacheshim::CallKind::kLook, call);
}

template <class Call>
auto look_at(int dirfd, const char* path, Call call) {
  return call_routed({dirfd, path}, cacheshim::CallKind::kLook, call);
}

}  // namespace

CACHESHIM_EXPORT int stat(const char* path, struct stat* out) noexcept {
  return look(path, [&](const char* p) { return real::stat(p, out); });
}

CACHESHIM_EXPORT int stat64(const char* path, struct stat64* out) noexcept {
  return look(path, [&](const char* p) { return real::stat64(p, out); });
}

CACHESHIM_EXPORT int lstat(const char* path, struct stat* out) noexcept {
  return look(path, [&](const char* p) { return real::lstat(p, out); });
}

CACHESHIM_EXPORT int lstat64(const char* path, struct stat64* out) noexcept {
  return look(path, [&](const char* p) { return real::lstat64(p, out); });
}

CACHESHIM_EXPORT int fstatat(int dirfd, const char* path, struct stat* out, int flags) noexcept {
  return look_at(dirfd, path, [&](const char* p) { return real::fstatat(dirfd, p, out, flags); });
}

CACHESHIM_EXPORT int fstatat64(int dirfd, const char* path, struct stat64* out,
                               int flags) noexcept {
  return look_at(dirfd, path, [&](const char* p) { return real::fstatat64(dirfd, p, out, flags); });
}

// What stat and its like were in programs built on glibc before 2.33.
CACHESHIM_EXPORT int __xstat(int version, const char* path, struct stat* out) noexcept {
  return look(path, [&](const char* p) { return real::__xstat(version, p, out); });
}

CACHESHIM_EXPORT int __xstat64(int version, const char* path, struct stat64* out) noexcept {
  return look(path, [&](const char* p) { return real::__xstat64(version, p, out); });
}

CACHESHIM_EXPORT int __lxstat(int version, const char* path, struct stat* out) noexcept {
  return look(path, [&](const char* p) { return real::__lxstat(version, p, out); });
}

CACHESHIM_EXPORT int __lxstat64(int version, const char* path, struct stat64* out) noexcept {
  return look(path, [&](const char* p) { return real::__lxstat64(version, p, out); });
}

CACHESHIM_EXPORT int __fxstatat(int version, int dirfd, const char* path, struct stat* out,
                                int flags) noexcept {
  return look_at(dirfd, path,
                 [&](const char* p) { return real::__fxstatat(version, dirfd, p, out, flags); });
}

CACHESHIM_EXPORT int __fxstatat64(int version, int dirfd, const char* path, struct stat64* out,
                                  int flags) noexcept {
  return look_at(dirfd, path,
                 [&](const char* p) { return real::__fxstatat64(version, dirfd, p, out, flags); });
}

CACHESHIM_EXPORT int statx(int dirfd, const char* path, int flags, unsigned mask,
                           struct statx* out) noexcept {
  return look_at(dirfd, path,
                 [&](const char* p) { return real::statx(dirfd, p, flags, mask, out); });
}

CACHESHIM_EXPORT int access(const char* path, int mode) noexcept {
  return look(path, [&](const char* p) { return real::access(p, mode); });
}

CACHESHIM_EXPORT int faccessat(int dirfd, const char* path, int mode, int flags) noexcept {
  return look_at(dirfd, path,
                 [&](const char* p) { return real::faccessat(dirfd, p, mode, flags); });
}

CACHESHIM_EXPORT int eaccess(const char* path, int mode) noexcept {
  return look(path, [&](const char* p) { return real::eaccess(p, mode); });
}

CACHESHIM_EXPORT int euidaccess(const char* path, int mode) noexcept {
  return look(path, [&](const char* p) { return real::euidaccess(p, mode); });
}

CACHESHIM_EXPORT int statfs(const char* path, struct statfs* out) noexcept {
  return look(path, [&](const char* p) { return real::statfs(p, out); });
}

CACHESHIM_EXPORT int statfs64(const char* path, struct statfs64* out) noexcept {
  return look(path, [&](const char* p) { return real::statfs64(p, out); });
}

CACHESHIM_EXPORT int __statfs(const char* path, struct statfs* out) noexcept {
  return look(path, [&](const char* p) { return real::__statfs(p, out); });
}

CACHESHIM_EXPORT int statvfs(const char* path, struct statvfs* out) noexcept {
  return look(path, [&](const char* p) { return real::statvfs(p, out); });
}

CACHESHIM_EXPORT int statvfs64(const char* path, struct statvfs64* out) noexcept {
  return look(path, [&](const char* p) { return real::statvfs64(p, out); });
}

CACHESHIM_EXPORT long pathconf(const char* path, int name) noexcept {
  return look(path, [&](const char* p) { return real::pathconf(p, name); });
}
