// SPDX-License-Identifier: Apache-2.0
#include "store/raw_locks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "store/sys.h"

namespace cacheshim {

// Lines as "1: FLOCK  ADVISORY  WRITE 708 00:13:1234 0 EOF", of those who wait with "->" behind the
// number. Source: locks_show of the kernel, proc(5).
bool is_locked_elsewhere(std::string_view table, dev_t device, ino_t inode, pid_t self) {
  const std::string file = fmt::format("{:02x}:{:02x}:{}", major(device), minor(device), inode);
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, kind, advice, access, place;
    pid_t process = 0;
    words >> number >> kind;
    if (kind == "->") words >> kind;
    words >> advice >> access >> process >> place;
    const bool is_lock = kind == "FLOCK" || kind == "POSIX";
    if (is_lock && place == file && process != self) return true;
  }
  return false;
}

bool is_locked_elsewhere(dev_t device, ino_t inode) {
  const auto fd = sys::open_path("/proc/locks", O_RDONLY);
  const auto table = fd ? sys::read_all(fd->get()) : Result<std::string>(fd.error());
  return table && is_locked_elsewhere(*table, device, inode, ::getpid());
}

}  // namespace cacheshim
