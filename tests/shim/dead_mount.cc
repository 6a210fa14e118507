// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <cstring>

// This library is preloaded after the library under test. Once TEST_DEAD_MOUNT names a directory, the functions below
// fail with ENOTCONN for paths in that directory, as on a mount whose daemon has died. The first TEST_STALE calls on
// paths in TEST_STALE_MOUNT fail with ESTALE, as if the file had been replaced twice between the call's lookup and its
// open.
namespace {

bool lies_in(const char* path, const char* variable) {
  const char* const mount = ::getenv(variable);
  if (mount == nullptr || path == nullptr) return false;
  const std::size_t length = std::strlen(mount);
  return std::strncmp(path, mount, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

bool is_dead(const char* path) {
  static long stale = ::getenv("TEST_STALE") == nullptr ? 0 : std::atol(::getenv("TEST_STALE"));
  const bool is_stale = stale > 0 && lies_in(path, "TEST_STALE_MOUNT");
  if (!is_stale && !lies_in(path, "TEST_DEAD_MOUNT")) return false;
  stale -= is_stale ? 1 : 0;
  errno = is_stale ? ESTALE : ENOTCONN;
  return true;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

#define CACHESHIM_NEXT(name) next<decltype(&::name)>(#name)

extern "C" {

#define CACHESHIM_DEAD_OPEN(name)                                               \
  int name(const char* path, int flags, ...) {                                  \
    va_list arguments;                                                          \
    va_start(arguments, flags);                                                 \
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0; \
    va_end(arguments);                                                          \
    return is_dead(path) ? -1 : CACHESHIM_NEXT(name)(path, flags, mode);        \
  }
CACHESHIM_DEAD_OPEN(open)
CACHESHIM_DEAD_OPEN(open64)

int mkdir(const char* path, mode_t mode) noexcept {
  return is_dead(path) ? -1 : CACHESHIM_NEXT(mkdir)(path, mode);
}

int access(const char* path, int mode) noexcept {
  return is_dead(path) ? -1 : CACHESHIM_NEXT(access)(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  return is_dead(from) || is_dead(to) ? -1 : CACHESHIM_NEXT(rename)(from, to);
}

int mkstemp64(char* text) { return is_dead(text) ? -1 : CACHESHIM_NEXT(mkstemp64)(text); }

int mkstemp(char* text) { return is_dead(text) ? -1 : CACHESHIM_NEXT(mkstemp)(text); }

}  // extern "C"
