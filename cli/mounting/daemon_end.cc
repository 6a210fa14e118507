// SPDX-License-Identifier: Apache-2.0
#include "cli/mounting/daemon_end.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "common/kernel_locks.h"
#include "common/names.h"

namespace cacheshim::cli {
namespace {

pid_t holder_of(int lock) {
  struct stat st {};
  std::ostringstream table;
  table << std::ifstream("/proc/locks").rdbuf();
  return ::fstat(lock, &st) == 0 ? find_flock_holder(table.str(), st.st_dev, st.st_ino) : 0;
}

UniqueFd open_holder(int lock, pid_t holder) {
  if (holder <= 0) return UniqueFd();
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, holder, 0)));
  // Checks that the lock's holder has not changed: its process ID may have been reused.
  return holder_of(lock) == holder ? std::move(process) : UniqueFd();
}

}  // namespace

pid_t find_flock_holder(std::string_view table, dev_t device, ino_t inode) {
  for (const KernelLock& lock : kernel_locks(table, device, inode)) {
    if (lock.is_flock && !lock.waits) return lock.process;
  }
  return 0;
}

DaemonEnd::DaemonEnd(const std::string& run_dir) {
  if (run_dir.empty()) return;
  const std::string path = fmt::format("{}/{}", run_dir, kRunLockFile);
  lock_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock_) return;
  holder_ = holder_of(lock_.get());
  process_ = open_holder(lock_.get(), holder_);
}

// Whether the daemon is a zombie that no longer holds its lock. A process becomes a zombie when its main thread exits,
// so a killed daemon may be a zombie while its other threads are still exiting. But it then keeps its lock until the
// last of them has exited.
bool DaemonEnd::has_released_all() const {
  if (holder_ <= 0) return false;
  std::ostringstream text;
  text << std::ifstream(fmt::format("/proc/{}/stat", holder_)).rdbuf();
  if (text.str().find(") Z ") == std::string::npos) return false;
  if (::flock(lock_.get(), LOCK_SH | LOCK_NB) != 0) return false;
  (void)::flock(lock_.get(), LOCK_UN);
  return true;
}

bool DaemonEnd::wait(std::chrono::milliseconds time) const {
  if (!process_ && (!lock_ || ::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0)) return true;
  struct pollfd end = {process_.get(), POLLIN, 0};  // without a process, poll(2) only sleeps
  return ::poll(&end, 1, static_cast<int>(time.count())) == 1 || has_released_all();
}

}  // namespace cacheshim::cli
