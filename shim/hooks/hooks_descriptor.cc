// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include "shim/direct/direct_directory.h"
#include "shim/routing/routed_call.h"

// The hooks of close, close_range and closefrom leave held_directory open. The hooks of dup2 and dup3 to its number
// close it first (direct_directory.h). The child of a vfork shares the parent's memory but has its own descriptors, and
// often closes most of them. If that changed held_directory, the parent would lose its descriptor. So only a dup2 or
// dup3 to exactly this number changes it.

namespace direct = cacheshim::direct;
namespace real = cacheshim::real;

namespace {

int held() { return direct::held_directory.load(std::memory_order_relaxed); }

bool is_held(int fd) { return fd >= 0 && fd == held(); }

int refuse() {
  errno = EBADF;
  return -1;
}

void make_room(int fd) {
  if (fd >= 0) direct::make_room(static_cast<unsigned>(fd), static_cast<unsigned>(fd));
}

}  // namespace

CACHESHIM_EXPORT int close(int fd) { return is_held(fd) ? refuse() : real::close(fd); }

CACHESHIM_EXPORT int __close(int fd) { return is_held(fd) ? refuse() : real::__close(fd); }

CACHESHIM_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
  const int kept = held();
  const auto number = static_cast<unsigned>(kept);
  if (kept < 0 || number < first || number > last) return real::close_range(first, last, flags);
  if (first < number) {
    const int result = real::close_range(first, number - 1, flags);
    if (result != 0) return result;
  }
  return number < last ? real::close_range(number + 1, last, flags) : 0;
}

CACHESHIM_EXPORT void closefrom(int first) noexcept {
  const auto next = real::closefrom.get();
  if (next == nullptr) return;
  const int kept = held();
  if (kept < first) return next(first);
  for (int fd = first < 0 ? 0 : first; fd < kept; ++fd) (void)real::close(fd);
  next(kept + 1);
}

CACHESHIM_EXPORT int dup2(int fd, int wanted) noexcept {
  make_room(wanted);
  return real::dup2(fd, wanted);
}

CACHESHIM_EXPORT int __dup2(int fd, int wanted) noexcept {
  make_room(wanted);
  return real::__dup2(fd, wanted);
}

CACHESHIM_EXPORT int dup3(int fd, int wanted, int flags) noexcept {
  make_room(wanted);
  return real::dup3(fd, wanted, flags);
}
