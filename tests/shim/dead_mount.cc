// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

// Preloaded behind the library under test: once TEST_DEAD_MOUNT names a folder, calls on paths below
// it fail as they do on a mount whose daemon has died.
namespace {

bool is_dead(const char* path) {
  const char* const mount = ::getenv("TEST_DEAD_MOUNT");
  if (mount == nullptr || path == nullptr) return false;
  if (std::strncmp(path, mount, std::strlen(mount)) != 0) return false;
  errno = ENOTCONN;
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
