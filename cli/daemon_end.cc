// SPDX-License-Identifier: Apache-2.0
#include "cli/daemon_end.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "common/names.h"

namespace cacheshim::cli {
namespace {

pid_t holder_of(int lock) {
  struct stat st {};
  std::ostringstream table;
  table << std::ifstream("/proc/locks").rdbuf();
  return ::fstat(lock, &st) == 0 ? find_flock_holder(table.str(), st.st_dev, st.st_ino) : 0;
}

UniqueFd open_holder(int lock) {
  const pid_t holder = holder_of(lock);
  if (holder <= 0) return UniqueFd();
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, holder, 0)));
  // Not of another process that has the number by now.
  return holder_of(lock) == holder ? std::move(process) : UniqueFd();
}

}  // namespace

// Lines as "1: FLOCK  ADVISORY  WRITE 708 00:13:1234 0 EOF", of those who wait with "->" behind the
// number. Source: locks_show of the kernel, proc(5).
pid_t find_flock_holder(std::string_view table, dev_t device, ino_t inode) {
  const std::string file = fmt::format("{:02x}:{:02x}:{}", major(device), minor(device), inode);
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, kind, advice, access, place;
    pid_t process = 0;
    words >> number >> kind >> advice >> access >> process >> place;
    if (kind == "FLOCK" && place == file) return process;
  }
  return 0;
}

DaemonEnd::DaemonEnd(const std::string& run_dir) {
  if (run_dir.empty()) return;
  const std::string path = fmt::format("{}/{}", run_dir, kRunLockFile);
  lock_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (lock_) process_ = open_holder(lock_.get());
}

bool DaemonEnd::wait(std::chrono::milliseconds time) const {
  if (!process_ && (!lock_ || ::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0)) return true;
  struct pollfd end = {process_.get(), POLLIN, 0};  // of no process it only takes the time
  return ::poll(&end, 1, static_cast<int>(time.count())) == 1;
}

}  // namespace cacheshim::cli
