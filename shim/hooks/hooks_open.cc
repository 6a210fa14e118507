// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <cstring>

#include "shim/direct/direct_call.h"
#include "shim/routing/routed_call.h"

using cacheshim::call_routed;
using cacheshim::CallKind;
using cacheshim::PathAt;
namespace direct = cacheshim::direct;
namespace real = cacheshim::real;

namespace {

CallKind kind_of(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? CallKind::kCreate
                                                                    : CallKind::kLookup;
}

CallKind kind_of(const char* mode) {
  return mode != nullptr && (*mode == 'w' || *mode == 'a') ? CallKind::kCreate : CallKind::kLookup;
}

// First tries to open the file in the base, if the base may answer a call with these flags.
template <class Call>
[[gnu::noinline]] int open_slowly(PathAt at, int flags, Call call) {
  const auto try_direct = [=](const char* p, int& fd) { return direct::open(p, flags, fd); };
  return cacheshim::call_directly_slowly<int>(at, kind_of(flags), try_direct, call);
}

// Most opens are outside all caches, so this function checks the path before the flags.
template <class Call>
int open_directly(PathAt at, int flags, Call call) {
  if (!cacheshim::runtime::may_match(at.path)) [[likely]]
    return call(at.path);
  return open_slowly(at, flags, call);
}

template <auto& real_open>
int open_at(const char* path, int flags, mode_t mode) {
  return open_directly({AT_FDCWD, path}, flags,
                       [=](const char* p) { return real_open(p, flags, mode); });
}

template <auto& real_openat>
int open_at(int dirfd, const char* path, int flags, mode_t mode) {
  return open_directly({dirfd, path}, flags,
                       [=](const char* p) { return real_openat(dirfd, p, flags, mode); });
}

template <auto& real_fopen>
FILE* open_stream(const char* path, const char* mode) {
  return cacheshim::call_directly(
      {AT_FDCWD, path}, kind_of(mode),
      [=](const char* p, FILE*& file) { return direct::fopen(p, mode, file); },
      [=](const char* p) { return real_fopen(p, mode); });
}

// A failed freopen(3) cannot be repeated, because it has closed the stream. So route_checked() checks
// the path before the call.
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

// A hook for one of libc's open functions, exported under that function's name. libc declares "..."
// for the mode. The hook has a named parameter instead, because only then can it end with a tail call
// (routed_call.h). Both of our ABIs (System V AMD64, AAPCS64) pass a variadic and a named argument at
// this position in the same register.
#define CACHESHIM_OPEN(function)                                        \
  CACHESHIM_EXPORT int hook_##function(const char* path, int flags,     \
                                       mode_t mode) __asm__(#function); \
  int hook_##function(const char* path, int flags, mode_t mode) {       \
    return open_at<real::function>(path, flags, mode);                  \
  }
#define CACHESHIM_OPENAT(function)                                             \
  CACHESHIM_EXPORT int hook_##function(int dirfd, const char* path, int flags, \
                                       mode_t mode) __asm__(#function);        \
  int hook_##function(int dirfd, const char* path, int flags, mode_t mode) {   \
    return open_at<real::function>(dirfd, path, flags, mode);                  \
  }

CACHESHIM_OPEN(open)
CACHESHIM_OPEN(open64)
CACHESHIM_OPEN(__open)
CACHESHIM_OPEN(__open64)
CACHESHIM_OPENAT(openat)
CACHESHIM_OPENAT(openat64)

// The variants that _FORTIFY_SOURCE uses for an open without a mode. They abort the program if the
// flags require a mode.
CACHESHIM_EXPORT int __open_2(const char* path, int flags) {
  return open_directly({AT_FDCWD, path}, flags,
                       [=](const char* p) { return real::__open_2(p, flags); });
}

CACHESHIM_EXPORT int __open64_2(const char* path, int flags) {
  return open_directly({AT_FDCWD, path}, flags,
                       [=](const char* p) { return real::__open64_2(p, flags); });
}

CACHESHIM_EXPORT int __openat_2(int dirfd, const char* path, int flags) {
  return open_directly({dirfd, path}, flags,
                       [=](const char* p) { return real::__openat_2(dirfd, p, flags); });
}

CACHESHIM_EXPORT int __openat64_2(int dirfd, const char* path, int flags) {
  return open_directly({dirfd, path}, flags,
                       [=](const char* p) { return real::__openat64_2(dirfd, p, flags); });
}

CACHESHIM_EXPORT int creat(const char* path, mode_t mode) {
  return call_routed({AT_FDCWD, path}, CallKind::kCreate,
                     [=](const char* p) { return real::creat(p, mode); });
}

CACHESHIM_EXPORT int creat64(const char* path, mode_t mode) {
  return call_routed({AT_FDCWD, path}, CallKind::kCreate,
                     [=](const char* p) { return real::creat64(p, mode); });
}

CACHESHIM_EXPORT FILE* fopen(const char* path, const char* mode) {
  return open_stream<real::fopen>(path, mode);
}

CACHESHIM_EXPORT FILE* fopen64(const char* path, const char* mode) {
  return open_stream<real::fopen64>(path, mode);
}

CACHESHIM_EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
  return reopen_stream(real::freopen, path, mode, stream);
}

CACHESHIM_EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  return reopen_stream(real::freopen64, path, mode, stream);
}
