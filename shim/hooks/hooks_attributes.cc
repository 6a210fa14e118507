// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include "shim/direct/direct_descriptor.h"
#include "shim/routing/routed_call.h"

// Hooks for the owners, modes, times and extended attributes of paths. A null path (utimensat, futimesat), or an empty
// path with AT_EMPTY_PATH, refers to the descriptor itself. The hook then first replaces a directly opened descriptor
// with a descriptor of the mount, as in hooks_file.cc.

namespace direct = cacheshim::direct;
namespace real = cacheshim::real;

namespace {

template <class Call>
auto by_path(const char* path, Call call) {
  return cacheshim::call_routed({AT_FDCWD, path}, cacheshim::CallKind::kLookup, call);
}

template <class Call>
auto by_path_at(int dirfd, const char* path, Call call) {
  return cacheshim::call_routed({dirfd, path}, cacheshim::CallKind::kLookup, call);
}

}  // namespace

CACHESHIM_EXPORT int chmod(const char* path, mode_t mode) noexcept {
  return by_path(path, [=](const char* p) { return real::chmod(p, mode); });
}

CACHESHIM_EXPORT int fchmodat(int dirfd, const char* path, mode_t mode, int flags) noexcept {
  if (direct::is_of_descriptor(path, flags)) direct::leave_base(dirfd);
  return by_path_at(dirfd, path,
                    [=](const char* p) { return real::fchmodat(dirfd, p, mode, flags); });
}

CACHESHIM_EXPORT int lchmod(const char* path, mode_t mode) noexcept {
  return by_path(path, [=](const char* p) { return real::lchmod(p, mode); });
}

CACHESHIM_EXPORT int chown(const char* path, uid_t owner, gid_t group) noexcept {
  return by_path(path, [=](const char* p) { return real::chown(p, owner, group); });
}

CACHESHIM_EXPORT int fchownat(int dirfd, const char* path, uid_t owner, gid_t group,
                              int flags) noexcept {
  if (direct::is_of_descriptor(path, flags)) direct::leave_base(dirfd);
  return by_path_at(dirfd, path,
                    [=](const char* p) { return real::fchownat(dirfd, p, owner, group, flags); });
}

CACHESHIM_EXPORT int lchown(const char* path, uid_t owner, gid_t group) noexcept {
  return by_path(path, [=](const char* p) { return real::lchown(p, owner, group); });
}

CACHESHIM_EXPORT int utime(const char* path, const utimbuf* times) noexcept {
  return by_path(path, [=](const char* p) { return real::utime(p, times); });
}

CACHESHIM_EXPORT int utimes(const char* path, const timeval times[2]) noexcept {
  return by_path(path, [=](const char* p) { return real::utimes(p, times); });
}

CACHESHIM_EXPORT int lutimes(const char* path, const timeval times[2]) noexcept {
  return by_path(path, [=](const char* p) { return real::lutimes(p, times); });
}

CACHESHIM_EXPORT int futimesat(int dirfd, const char* path, const timeval times[2]) noexcept {
  if (path == nullptr) direct::leave_base(dirfd);
  return by_path_at(dirfd, path, [=](const char* p) { return real::futimesat(dirfd, p, times); });
}

CACHESHIM_EXPORT int utimensat(int dirfd, const char* path, const timespec times[2],
                               int flags) noexcept {
  if (path == nullptr || direct::is_of_descriptor(path, flags)) direct::leave_base(dirfd);
  return by_path_at(dirfd, path,
                    [=](const char* p) { return real::utimensat(dirfd, p, times, flags); });
}

CACHESHIM_EXPORT ssize_t getxattr(const char* path, const char* name, void* value,
                                  size_t size) noexcept {
  return by_path(path, [=](const char* p) { return real::getxattr(p, name, value, size); });
}

CACHESHIM_EXPORT ssize_t lgetxattr(const char* path, const char* name, void* value,
                                   size_t size) noexcept {
  return by_path(path, [=](const char* p) { return real::lgetxattr(p, name, value, size); });
}

CACHESHIM_EXPORT int setxattr(const char* path, const char* name, const void* value, size_t size,
                              int flags) noexcept {
  return by_path(path, [=](const char* p) { return real::setxattr(p, name, value, size, flags); });
}

CACHESHIM_EXPORT int lsetxattr(const char* path, const char* name, const void* value, size_t size,
                               int flags) noexcept {
  return by_path(path, [=](const char* p) { return real::lsetxattr(p, name, value, size, flags); });
}

CACHESHIM_EXPORT ssize_t listxattr(const char* path, char* names, size_t size) noexcept {
  return by_path(path, [=](const char* p) { return real::listxattr(p, names, size); });
}

CACHESHIM_EXPORT ssize_t llistxattr(const char* path, char* names, size_t size) noexcept {
  return by_path(path, [=](const char* p) { return real::llistxattr(p, names, size); });
}

CACHESHIM_EXPORT int removexattr(const char* path, const char* name) noexcept {
  return by_path(path, [=](const char* p) { return real::removexattr(p, name); });
}

CACHESHIM_EXPORT int lremovexattr(const char* path, const char* name) noexcept {
  return by_path(path, [=](const char* p) { return real::lremovexattr(p, name); });
}
