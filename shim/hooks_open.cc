// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <cstdarg>
#include <cstring>

#include "shim/direct_call.h"
#include "shim/routed_call.h"

using cacheshim::call_routed;
using cacheshim::CallKind;
namespace direct = cacheshim::direct;
namespace real = cacheshim::real;

namespace {

CallKind kind_of(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? CallKind::kCreate
                                                                    : CallKind::kLook;
}

CallKind kind_of(const char* mode) {
  return mode != nullptr && (*mode == 'w' || *mode == 'a') ? CallKind::kCreate : CallKind::kLook;
}

// The mode that follows `flags`, which is there only for a call that may create.
#define CACHESHIM_READ_MODE(flags)           \
  mode_t mode = 0;                           \
  if (kind_of(flags) == CallKind::kCreate) { \
    va_list arguments;                       \
    va_start(arguments, flags);              \
    mode = va_arg(arguments, mode_t);        \
    va_end(arguments);                       \
  }

// The base first, for what it may answer.
template <class Call>
int open_directly(int dirfd, const char* path, int flags, Call call) {
  return cacheshim::call_directly(
      {dirfd, path}, kind_of(flags),
      [&](const char* p, int& fd) { return direct::open(p, flags, fd); }, call);
}

template <class Real>
int open_at(Real& real_open, const char* path, int flags, mode_t mode) {
  return open_directly(AT_FDCWD, path, flags,
                       [&](const char* p) { return real_open(p, flags, mode); });
}

template <class Real>
int open_at(Real& real_openat, int dirfd, const char* path, int flags, mode_t mode) {
  return open_directly(dirfd, path, flags,
                       [&](const char* p) { return real_openat(dirfd, p, flags, mode); });
}

template <class Real>
FILE* open_stream(Real& real_fopen, const char* path, const char* mode) {
  return cacheshim::call_directly(
      {AT_FDCWD, path}, kind_of(mode),
      [&](const char* p, FILE*& file) { return direct::fopen(p, mode, file); },
      [&](const char* p) { return real_fopen(p, mode); });
}

// A freopen that fails has closed the stream and cannot be repeated.
template <class Real>
FILE* reopen_stream(Real& real_freopen, const char* path, const char* mode, FILE* stream) {
  if (!cacheshim::runtime::may_match(path)) return real_freopen(path, mode, stream);
  const int entry_errno = errno;
  cacheshim::PathBuffer buffer;
  const cacheshim::RoutedPath routed =
      cacheshim::route_checked({AT_FDCWD, path}, kind_of(mode), buffer);
  int own_errno = 0;
  auto once = [&] { return real_freopen(routed.path, mode, stream); };
  return cacheshim::call_with_own_errno(entry_errno, own_errno, once);
}

}  // namespace

CACHESHIM_EXPORT int open(const char* path, int flags, ...) {
  CACHESHIM_READ_MODE(flags)
  return open_at(real::open, path, flags, mode);
}

CACHESHIM_EXPORT int open64(const char* path, int flags, ...) {
  CACHESHIM_READ_MODE(flags)
  return open_at(real::open64, path, flags, mode);
}

CACHESHIM_EXPORT int __open(const char* path, int flags, ...) {
  CACHESHIM_READ_MODE(flags)
  return open_at(real::__open, path, flags, mode);
}

CACHESHIM_EXPORT int __open64(const char* path, int flags, ...) {
  CACHESHIM_READ_MODE(flags)
  return open_at(real::__open64, path, flags, mode);
}

CACHESHIM_EXPORT int openat(int dirfd, const char* path, int flags, ...) {
  CACHESHIM_READ_MODE(flags)
  return open_at(real::openat, dirfd, path, flags, mode);
}

CACHESHIM_EXPORT int openat64(int dirfd, const char* path, int flags, ...) {
  CACHESHIM_READ_MODE(flags)
  return open_at(real::openat64, dirfd, path, flags, mode);
}

// What _FORTIFY_SOURCE makes of an open without a mode. They abort where one was needed.
CACHESHIM_EXPORT int __open_2(const char* path, int flags) {
  return open_directly(AT_FDCWD, path, flags,
                       [&](const char* p) { return real::__open_2(p, flags); });
}

CACHESHIM_EXPORT int __open64_2(const char* path, int flags) {
  return open_directly(AT_FDCWD, path, flags,
                       [&](const char* p) { return real::__open64_2(p, flags); });
}

CACHESHIM_EXPORT int __openat_2(int dirfd, const char* path, int flags) {
  return open_directly(dirfd, path, flags,
                       [&](const char* p) { return real::__openat_2(dirfd, p, flags); });
}

CACHESHIM_EXPORT int __openat64_2(int dirfd, const char* path, int flags) {
  return open_directly(dirfd, path, flags,
                       [&](const char* p) { return real::__openat64_2(dirfd, p, flags); });
}

CACHESHIM_EXPORT int creat(const char* path, mode_t mode) {
  return call_routed({AT_FDCWD, path}, CallKind::kCreate,
                     [&](const char* p) { return real::creat(p, mode); });
}

CACHESHIM_EXPORT int creat64(const char* path, mode_t mode) {
  return call_routed({AT_FDCWD, path}, CallKind::kCreate,
                     [&](const char* p) { return real::creat64(p, mode); });
}

CACHESHIM_EXPORT FILE* fopen(const char* path, const char* mode) {
  return open_stream(real::fopen, path, mode);
}

CACHESHIM_EXPORT FILE* fopen64(const char* path, const char* mode) {
  return open_stream(real::fopen64, path, mode);
}

CACHESHIM_EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
  return reopen_stream(real::freopen, path, mode, stream);
}

CACHESHIM_EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  return reopen_stream(real::freopen64, path, mode, stream);
}
