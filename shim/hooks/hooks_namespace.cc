// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include "shim/direct/direct_call.h"
#include "shim/routing/routed_call.h"

using cacheshim::call_routed_pair;
using cacheshim::CallKind;
namespace direct = cacheshim::direct;
namespace real = cacheshim::real;

namespace {

template <class Call>
int create(int dirfd, const char* path, Call call) {
  return cacheshim::call_routed({dirfd, path}, CallKind::kCreate, call);
}

// Tries the base first: if the view shows an object of the base by this name, the call fails with EEXIST, without a
// request to the daemon.
template <class Call>
int make_directory(int dirfd, const char* path, Call call) {
  return cacheshim::call_directly(
      {dirfd, path}, CallKind::kCreate,
      [](const char* p, int& result) { return direct::mkdir(p, result); }, call);
}

template <class Call>
int change(int dirfd, const char* path, Call call) {
  return cacheshim::call_routed({dirfd, path}, CallKind::kLookup, call);
}

}  // namespace

CACHESHIM_EXPORT int rename(const char* from, const char* to) noexcept {
  return call_routed_pair({AT_FDCWD, from}, {AT_FDCWD, to},
                          [=](const char* a, const char* b) { return real::rename(a, b); });
}

CACHESHIM_EXPORT int renameat(int from_fd, const char* from, int to_fd, const char* to) noexcept {
  return call_routed_pair({from_fd, from}, {to_fd, to}, [=](const char* a, const char* b) {
    return real::renameat(from_fd, a, to_fd, b);
  });
}

CACHESHIM_EXPORT int renameat2(int from_fd, const char* from, int to_fd, const char* to,
                               unsigned flags) noexcept {
  return call_routed_pair({from_fd, from}, {to_fd, to}, [=](const char* a, const char* b) {
    return real::renameat2(from_fd, a, to_fd, b, flags);
  });
}

CACHESHIM_EXPORT int link(const char* from, const char* to) noexcept {
  return call_routed_pair({AT_FDCWD, from}, {AT_FDCWD, to},
                          [=](const char* a, const char* b) { return real::link(a, b); });
}

CACHESHIM_EXPORT int linkat(int from_fd, const char* from, int to_fd, const char* to,
                            int flags) noexcept {
  return call_routed_pair({from_fd, from}, {to_fd, to}, [=](const char* a, const char* b) {
    return real::linkat(from_fd, a, to_fd, b, flags);
  });
}

// The target is plain text, so the hook passes it unchanged.
CACHESHIM_EXPORT int symlink(const char* target, const char* path) noexcept {
  return create(AT_FDCWD, path, [=](const char* p) { return real::symlink(target, p); });
}

CACHESHIM_EXPORT int symlinkat(const char* target, int dirfd, const char* path) noexcept {
  return create(dirfd, path, [=](const char* p) { return real::symlinkat(target, dirfd, p); });
}

CACHESHIM_EXPORT int unlink(const char* path) noexcept {
  return change(AT_FDCWD, path, [=](const char* p) { return real::unlink(p); });
}

CACHESHIM_EXPORT int unlinkat(int dirfd, const char* path, int flags) noexcept {
  return change(dirfd, path, [=](const char* p) { return real::unlinkat(dirfd, p, flags); });
}

CACHESHIM_EXPORT int remove(const char* path) noexcept {
  return change(AT_FDCWD, path, [=](const char* p) { return real::remove(p); });
}

CACHESHIM_EXPORT int rmdir(const char* path) noexcept {
  return change(AT_FDCWD, path, [=](const char* p) { return real::rmdir(p); });
}

CACHESHIM_EXPORT int mkdir(const char* path, mode_t mode) noexcept {
  return make_directory(AT_FDCWD, path, [=](const char* p) { return real::mkdir(p, mode); });
}

CACHESHIM_EXPORT int mkdirat(int dirfd, const char* path, mode_t mode) noexcept {
  return make_directory(dirfd, path, [=](const char* p) { return real::mkdirat(dirfd, p, mode); });
}

CACHESHIM_EXPORT int mknod(const char* path, mode_t mode, dev_t device) noexcept {
  return create(AT_FDCWD, path, [=](const char* p) { return real::mknod(p, mode, device); });
}

CACHESHIM_EXPORT int mknodat(int dirfd, const char* path, mode_t mode, dev_t device) noexcept {
  return create(dirfd, path, [=](const char* p) { return real::mknodat(dirfd, p, mode, device); });
}

// mknod in programs built with glibc before 2.33.
CACHESHIM_EXPORT int __xmknod(int version, const char* path, mode_t mode, dev_t* device) noexcept {
  return create(AT_FDCWD, path,
                [=](const char* p) { return real::__xmknod(version, p, mode, device); });
}

CACHESHIM_EXPORT int __xmknodat(int version, int dirfd, const char* path, mode_t mode,
                                dev_t* device) noexcept {
  return create(dirfd, path,
                [=](const char* p) { return real::__xmknodat(version, dirfd, p, mode, device); });
}

CACHESHIM_EXPORT int mkfifo(const char* path, mode_t mode) noexcept {
  return create(AT_FDCWD, path, [=](const char* p) { return real::mkfifo(p, mode); });
}

CACHESHIM_EXPORT int mkfifoat(int dirfd, const char* path, mode_t mode) noexcept {
  return create(dirfd, path, [=](const char* p) { return real::mkfifoat(dirfd, p, mode); });
}

CACHESHIM_EXPORT int truncate(const char* path, off_t length) noexcept {
  return change(AT_FDCWD, path, [=](const char* p) { return real::truncate(p, length); });
}

CACHESHIM_EXPORT int truncate64(const char* path, off64_t length) noexcept {
  return change(AT_FDCWD, path, [=](const char* p) { return real::truncate64(p, length); });
}
