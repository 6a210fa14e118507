// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/direct_folder.h"

#include "common/unique_fd.h"
#include "shim/errno_guard.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x00001000U  // Linux 5.8
#endif

namespace cacheshim::direct {

constinit std::atomic<int> held_folder{-1};

namespace {

constexpr unsigned kAsksBefore = 64;
constexpr int kLowestNumber = 500;

constinit std::atomic<std::uint64_t> held_mount{0};
constinit std::atomic<unsigned> asks{0};

// The descriptor itself, or -1.
int open_folder(const View& view) {
  const int low = real::open(view.base, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (low < 0) return -1;
  const int high = ::fcntl(low, F_DUPFD_CLOEXEC, kLowestNumber);
  (void)real::close(low);
  if (high < 0) return -1;
  struct statx st;
  if (real::statx(high, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) == 0 &&
      st.stx_mnt_id == view.base_mount) {
    return high;
  }
  (void)real::close(high);
  return -1;
}

// Once in a process' life, and for a new daemon's base once more.
[[gnu::noinline]] int take_folder(const View& view) {
  const unsigned asked = asks.load(std::memory_order_relaxed);
  if (asked != kAsksBefore) {
    if (asked < kAsksBefore) asks.store(asked + 1, std::memory_order_relaxed);  // about so many
    return -1;
  }
  unsigned expected = kAsksBefore;
  if (!asks.compare_exchange_strong(expected, kAsksBefore + 1)) return -1;
  const ErrnoGuard errno_guard;
  const int fd = open_folder(view);
  if (fd < 0) return -1;
  held_mount.store(view.base_mount);
  held_folder.store(fd);
  return fd;
}

}  // namespace

int base_folder(const View& view) {
  const int fd = held_folder.load(std::memory_order_acquire);
  if (fd < 0) return take_folder(view);
  if (held_mount.load(std::memory_order_relaxed) == view.base_mount) [[likely]]
    return fd;
  drop_base_folder();
  asks.store(0, std::memory_order_relaxed);
  return -1;
}

// Another thread may be about to use it: what it asks then fails with EBADF, or its answer is another
// folder's only if the number is taken again in that very moment by somebody who asks for it.
void drop_base_folder() {
  const ErrnoGuard errno_guard;
  const int fd = held_folder.exchange(-1);
  if (fd >= 0) (void)real::close(fd);
}

}  // namespace cacheshim::direct
