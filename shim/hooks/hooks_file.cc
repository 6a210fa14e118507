// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <cstdarg>

#include "shim/direct/direct_descriptor.h"
#include "shim/routing/routed_call.h"

// Hooks for calls on a descriptor that lock a file or change its attributes. These calls must not affect the base, so
// the hook first replaces a directly opened descriptor with a descriptor of the mount.

namespace direct = cacheshim::direct;
namespace real = cacheshim::real;

namespace {

template <class Call>
int on_mount(int fd, Call call) {
  (void)direct::leave_base(fd);
  return call();
}

}  // namespace

CACHESHIM_EXPORT int flock(int fd, int operation) noexcept {
  return on_mount(fd, [=] { return real::flock(fd, operation); });
}

// The argument after the command is an int, a pointer or absent; the ABI passes an int and a
// pointer in the same place.
#define CACHESHIM_FCNTL(function)                               \
  CACHESHIM_EXPORT int function(int fd, int command, ...) {     \
    va_list arguments;                                          \
    va_start(arguments, command);                               \
    void* const argument = va_arg(arguments, void*);            \
    va_end(arguments);                                          \
    if (direct::is_lock(command)) (void)direct::leave_base(fd); \
    return real::function(fd, command, argument);               \
  }

CACHESHIM_FCNTL(fcntl)
CACHESHIM_FCNTL(fcntl64)

CACHESHIM_EXPORT int fchmod(int fd, mode_t mode) noexcept {
  return on_mount(fd, [=] { return real::fchmod(fd, mode); });
}

CACHESHIM_EXPORT int fchown(int fd, uid_t owner, gid_t group) noexcept {
  return on_mount(fd, [=] { return real::fchown(fd, owner, group); });
}

CACHESHIM_EXPORT int futimes(int fd, const timeval times[2]) noexcept {
  return on_mount(fd, [=] { return real::futimes(fd, times); });
}

CACHESHIM_EXPORT int futimens(int fd, const timespec times[2]) noexcept {
  return on_mount(fd, [=] { return real::futimens(fd, times); });
}

CACHESHIM_EXPORT int fsetxattr(int fd, const char* name, const void* value, size_t size,
                               int flags) noexcept {
  return on_mount(fd, [=] { return real::fsetxattr(fd, name, value, size, flags); });
}

CACHESHIM_EXPORT int fremovexattr(int fd, const char* name) noexcept {
  return on_mount(fd, [=] { return real::fremovexattr(fd, name); });
}
