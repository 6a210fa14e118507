// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include "shim/direct/direct_call.h"
#include "shim/direct/direct_descriptor.h"
#include "shim/routing/routed_call.h"

using cacheshim::call_routed;
namespace direct = cacheshim::direct;
namespace real = cacheshim::real;

namespace {

template <class Call>
auto call_lookup(const char* path, Call call) {
  return call_routed({AT_FDCWD, path}, cacheshim::CallKind::kLookup, call);
}

// For glibc's old stat functions: returns `flags` if a call with this version writes the current struct stat. Otherwise
// returns flags that prevent a direct answer.
int flags_of(int version, int flags) {
  return cacheshim::is_stat_version(version) ? flags : AT_NO_AUTOMOUNT;
}

// As call_lookup(), for *at calls that the base may answer.
template <class Direct, class Call>
int call_lookup_directly(int dirfd, const char* path, Direct direct_call, Call call) {
  return cacheshim::call_directly({dirfd, path}, cacheshim::CallKind::kLookup, direct_call, call);
}

// struct stat64 is the same as struct stat.
template <class Stat>
struct stat& as_stat(Stat& st) {
  static_assert(sizeof(Stat) == sizeof(struct stat));
  return *static_cast<struct stat*>(static_cast<void*>(&st));
}

template <class Stat, class Call>
int stat_at(int dirfd, const char* path, Stat* out, int flags, Call call) {
  if (path == nullptr) {  // the kernel decides whether null means the descriptor
    const int result = call(path);
    if (result == 0) direct::show_descriptor(dirfd, as_stat(*out));
    return result;
  }
  if (direct::is_of_descriptor(path, flags)) {
    return direct::fstat_as_view(dirfd, out, [=] { return call(path); });
  }
  const auto direct_call = [=](const char* p, int& result) {
    return direct::stat(p, flags, out, result);
  };
  return call_lookup_directly(dirfd, path, direct_call, call);
}

template <class Call>
int access_at(int dirfd, const char* path, int mode, int flags, Call call) {
  const auto direct_call = [=](const char* p, int& result) {
    return direct::access(p, mode, flags, result);
  };
  return call_lookup_directly(dirfd, path, direct_call, call);
}

}  // namespace

CACHESHIM_EXPORT int stat(const char* path, struct stat* out) noexcept {
  return stat_at(AT_FDCWD, path, out, 0, [=](const char* p) { return real::stat(p, out); });
}

CACHESHIM_EXPORT int stat64(const char* path, struct stat64* out) noexcept {
  return stat_at(AT_FDCWD, path, out, 0, [=](const char* p) { return real::stat64(p, out); });
}

CACHESHIM_EXPORT int lstat(const char* path, struct stat* out) noexcept {
  return stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW,
                 [=](const char* p) { return real::lstat(p, out); });
}

CACHESHIM_EXPORT int lstat64(const char* path, struct stat64* out) noexcept {
  return stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW,
                 [=](const char* p) { return real::lstat64(p, out); });
}

CACHESHIM_EXPORT int fstatat(int dirfd, const char* path, struct stat* out, int flags) noexcept {
  return stat_at(dirfd, path, out, flags,
                 [=](const char* p) { return real::fstatat(dirfd, p, out, flags); });
}

CACHESHIM_EXPORT int fstatat64(int dirfd, const char* path, struct stat64* out,
                               int flags) noexcept {
  return stat_at(dirfd, path, out, flags,
                 [=](const char* p) { return real::fstatat64(dirfd, p, out, flags); });
}

// stat and its variants in programs built with glibc before 2.33.
CACHESHIM_EXPORT int __xstat(int version, const char* path, struct stat* out) noexcept {
  return stat_at(AT_FDCWD, path, out, flags_of(version, 0),
                 [=](const char* p) { return real::__xstat(version, p, out); });
}

CACHESHIM_EXPORT int __xstat64(int version, const char* path, struct stat64* out) noexcept {
  return stat_at(AT_FDCWD, path, out, flags_of(version, 0),
                 [=](const char* p) { return real::__xstat64(version, p, out); });
}

CACHESHIM_EXPORT int __lxstat(int version, const char* path, struct stat* out) noexcept {
  return stat_at(AT_FDCWD, path, out, flags_of(version, AT_SYMLINK_NOFOLLOW),
                 [=](const char* p) { return real::__lxstat(version, p, out); });
}

CACHESHIM_EXPORT int __lxstat64(int version, const char* path, struct stat64* out) noexcept {
  return stat_at(AT_FDCWD, path, out, flags_of(version, AT_SYMLINK_NOFOLLOW),
                 [=](const char* p) { return real::__lxstat64(version, p, out); });
}

CACHESHIM_EXPORT int __fxstatat(int version, int dirfd, const char* path, struct stat* out,
                                int flags) noexcept {
  return stat_at(dirfd, path, out, flags_of(version, flags),
                 [=](const char* p) { return real::__fxstatat(version, dirfd, p, out, flags); });
}

CACHESHIM_EXPORT int __fxstatat64(int version, int dirfd, const char* path, struct stat64* out,
                                  int flags) noexcept {
  return stat_at(dirfd, path, out, flags_of(version, flags),
                 [=](const char* p) { return real::__fxstatat64(version, dirfd, p, out, flags); });
}

CACHESHIM_EXPORT int statx(int dirfd, const char* path, int flags, unsigned mask,
                           struct statx* out) noexcept {
  if (direct::is_of_descriptor(path, flags)) {
    const int result = real::statx(dirfd, path, flags, mask, out);
    if (result == 0) direct::show_descriptor(dirfd, *out);
    return result;
  }
  const auto direct_call = [=](const char* p, int& result) {
    return direct::statx(p, flags, mask, out, result);
  };
  return call_lookup_directly(dirfd, path, direct_call, [=](const char* p) {
    return real::statx(dirfd, p, flags, mask, out);
  });
}

CACHESHIM_EXPORT int access(const char* path, int mode) noexcept {
  return access_at(AT_FDCWD, path, mode, 0, [=](const char* p) { return real::access(p, mode); });
}

CACHESHIM_EXPORT int faccessat(int dirfd, const char* path, int mode, int flags) noexcept {
  return access_at(dirfd, path, mode, flags,
                   [=](const char* p) { return real::faccessat(dirfd, p, mode, flags); });
}

CACHESHIM_EXPORT int eaccess(const char* path, int mode) noexcept {
  return access_at(AT_FDCWD, path, mode, AT_EACCESS,
                   [=](const char* p) { return real::eaccess(p, mode); });
}

CACHESHIM_EXPORT int euidaccess(const char* path, int mode) noexcept {
  return access_at(AT_FDCWD, path, mode, AT_EACCESS,
                   [=](const char* p) { return real::euidaccess(p, mode); });
}

CACHESHIM_EXPORT int statfs(const char* path, struct statfs* out) noexcept {
  return call_lookup(path, [=](const char* p) { return real::statfs(p, out); });
}

CACHESHIM_EXPORT int statfs64(const char* path, struct statfs64* out) noexcept {
  return call_lookup(path, [=](const char* p) { return real::statfs64(p, out); });
}

CACHESHIM_EXPORT int __statfs(const char* path, struct statfs* out) noexcept {
  return call_lookup(path, [=](const char* p) { return real::__statfs(p, out); });
}

CACHESHIM_EXPORT int statvfs(const char* path, struct statvfs* out) noexcept {
  return call_lookup(path, [=](const char* p) { return real::statvfs(p, out); });
}

CACHESHIM_EXPORT int statvfs64(const char* path, struct statvfs64* out) noexcept {
  return call_lookup(path, [=](const char* p) { return real::statvfs64(p, out); });
}

CACHESHIM_EXPORT long pathconf(const char* path, int name) noexcept {
  return call_lookup(path, [=](const char* p) { return real::pathconf(p, name); });
}
