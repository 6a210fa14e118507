// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/direct/direct_directory.h"

#include "common/unique_fd.h"
#include "shim/errno_guard.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x00001000U  // Linux 5.8
#endif

namespace cacheshim::direct {

constinit std::atomic<int> held_directory{-1};

namespace {

constexpr unsigned kCallsBeforeOpen = 64;
constexpr int kLowestNumber = 500;

// The mount ID of the held directory. 0 until hold_directory() has verified that the descriptor in
// held_directory is the base's directory.
constinit std::atomic<std::uint64_t> held_mount{0};
constinit std::atomic<unsigned> call_count{0};
constinit std::atomic<pid_t> counted_process{0};  // the process whose calls are counted

// Identifies the base's directory.
struct DirectoryId {
  std::uint64_t mount = 0;
  std::uint64_t inode = 0;
  bool operator==(const DirectoryId& other) const = default;
};

// Returns mount 0 if the kernel does not report the mount.
DirectoryId id_of(int fd) {
  struct statx st;
  if (real::statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_MNT_ID, &st) != 0) return {};
  return {st.stx_mnt_id, st.stx_ino};
}

// Opens the base's directory and stores its descriptor in held_directory. Returns the descriptor, or -1. The hooks
// protect the descriptor only once it is in held_directory. Before that, another thread of the program may close the
// descriptor and open its own file under the same number. So this function checks, after the store, whether the number
// still denotes the base's directory. If not, the file belongs to the program, and this function must not close it.
int hold_directory(const View& view) {
  const UniqueFd low(real::open(view.base, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!low) return -1;
  const DirectoryId directory = id_of(low.get());
  if (directory.mount != view.base_mount) return -1;
  const int high = ::fcntl(low.get(), F_DUPFD_CLOEXEC, kLowestNumber);
  if (high < 0) return -1;
  held_mount.store(0);
  held_directory.store(high);
  if (id_of(high) == directory) {
    held_mount.store(view.base_mount);
    return high;
  }
  int expected = high;
  held_directory.compare_exchange_strong(expected, -1);
  return -1;
}

// Counts the calls, and opens the directory at the first call after kCallsBeforeOpen calls. This happens once in a
// process's life, and again for the base of each new daemon. If a forked child inherits an unfinished count, the count
// continues to kCallsBeforeOpen and then starts again at 0 (`counted_process` is another process). The child of a vfork
// shares its parent's memory but has its own descriptors; it never opens the directory, because it executes another
// program before it has counted enough calls.
[[gnu::noinline]] int take_directory(const View& view) {
  const unsigned count = call_count.load(std::memory_order_relaxed);
  if (count == 0) counted_process.store(::getpid(), std::memory_order_relaxed);
  if (count != kCallsBeforeOpen) {
    // The count is approximate: concurrent calls may count as one.
    if (count < kCallsBeforeOpen) call_count.store(count + 1, std::memory_order_relaxed);
    return -1;
  }
  const bool is_new = counted_process.load(std::memory_order_relaxed) != ::getpid();
  unsigned expected = kCallsBeforeOpen;
  if (!call_count.compare_exchange_strong(expected, is_new ? 0 : kCallsBeforeOpen + 1) || is_new)
    return -1;
  const ErrnoGuard errno_guard;
  return hold_directory(view);
}

}  // namespace

int base_directory(const View& view) {
  const int fd = held_directory.load(std::memory_order_acquire);
  if (fd < 0) return take_directory(view);
  const std::uint64_t mount = held_mount.load(std::memory_order_relaxed);
  if (mount == view.base_mount) [[likely]]
    return fd;
  if (mount == 0) return -1;
  drop_base_directory();
  call_count.store(0, std::memory_order_relaxed);
  return -1;
}

// Another thread may be about to use the descriptor. That thread's call then fails with EBADF or
// uses another directory, and the thread discards the answer (is_held()).
void drop_base_directory() {
  const ErrnoGuard errno_guard;
  const int fd = held_directory.exchange(-1);
  if (fd >= 0) (void)real::close(fd);
}

}  // namespace cacheshim::direct
