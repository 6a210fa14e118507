// SPDX-License-Identifier: Apache-2.0
#include "common/kernel_locks.h"

#include <sys/sysmacros.h>

#include <iomanip>
#include <sstream>
#include <string>

namespace cacheshim {
namespace {

// Formats the file's identity as in /proc/locks: "00:13:1234".
std::string name_of(dev_t device, ino_t inode) {
  std::ostringstream name;
  name << std::hex << std::setfill('0') << std::setw(2) << major(device) << ':' << std::setw(2)
       << minor(device) << ':' << std::dec << inode;
  return name.str();
}

}  // namespace

// Parses lines such as "1: FLOCK  ADVISORY  WRITE 708 00:13:1234 0 EOF"; waiting requests have "->"
// after the number. Sources: locks_show() in the kernel, proc(5).
std::vector<KernelLock> kernel_locks(std::string_view table, dev_t device, ino_t inode) {
  const std::string file = name_of(device, inode);
  std::vector<KernelLock> locks;
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, kind, advice, access, place;
    KernelLock lock;
    words >> number >> kind;
    lock.waits = kind == "->";
    if (lock.waits) words >> kind;
    words >> advice >> access >> lock.process >> place;
    lock.is_flock = kind == "FLOCK";
    if (place == file && (lock.is_flock || kind == "POSIX")) locks.push_back(lock);
  }
  return locks;
}

}  // namespace cacheshim
