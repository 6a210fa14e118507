// SPDX-License-Identifier: Apache-2.0
#include "store/sys/raw_locks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "common/kernel_locks.h"
#include "store/sys/sys.h"

namespace cacheshim {

bool is_locked_elsewhere(std::string_view table, dev_t device, ino_t inode, pid_t self) {
  const auto locks = kernel_locks(table, device, inode);
  return std::any_of(locks.begin(), locks.end(),
                     [self](const KernelLock& lock) { return lock.process != self; });
}

bool is_locked_elsewhere(dev_t device, ino_t inode) {
  const auto fd = sys::open_path("/proc/locks", O_RDONLY);
  const auto table = fd ? sys::read_all(fd->get()) : Result<std::string>(fd.error());
  return table && is_locked_elsewhere(*table, device, inode, ::getpid());
}

}  // namespace cacheshim
