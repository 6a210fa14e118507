// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/open_descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/mount_info.h"
#include "store/sys/process.h"

namespace cacheshim {
namespace {

// Returns the value of the line "<name>:" in the text of /proc/PID/fdinfo/N.
std::uint64_t fdinfo_field(const std::string& text, std::string_view name) {
  const std::string_view field = status_field(text, name);
  std::uint64_t value = 0;
  // If this fails, `value` stays 0, which is never the inode number of a file.
  (void)std::from_chars(field.data(), field.data() + field.size(), value);
  return value;
}

// Returns inode 0 if the process has no descriptor `number`, or if Linux is older than 5.14.
OpenDescriptor read_descriptor(pid_t process, int number) {
  const auto text = read_proc(process, fmt::format("fdinfo/{}", number).c_str());
  if (!text) return {};
  return {number, fdinfo_field(*text, "ino"), fdinfo_field(*text, "mnt_id")};
}

std::vector<int> numbers_of(pid_t process) {
  std::vector<int> numbers;
  DIR* const dir = ::opendir(fmt::format("/proc/{}/fdinfo", process).c_str());
  if (dir == nullptr) return numbers;
  while (const dirent* entry = ::readdir(dir)) {
    if (numbers.size() > kMostSearched) break;
    if (entry->d_name[0] != '.') numbers.push_back(std::atoi(entry->d_name));
  }
  (void)::closedir(dir);
  return numbers;
}

// The values of F_SETLK64 and F_SETLKW64 in 32-bit processes.
constexpr unsigned long kSetLock64 = 13;
constexpr unsigned long kSetLockWaiting64 = 14;

LockCallKind kind_of(unsigned long command) {
  switch (command) {
    case F_SETLK:
    case F_SETLKW:
    case kSetLock64:
    case kSetLockWaiting64:
      return LockCallKind::kOfProcess;
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
      return LockCallKind::kOfDescription;
    default:
      return LockCallKind::kUnknown;
  }
}

// Whether the object does not exist. Any other error may mean that the daemon only lacks access to it.
bool is_gone(Errno error) { return error == ENOENT || error == ESRCH; }

bool is_fuse(const MountEntry& mount) { return mount.type.starts_with("fuse"); }

}  // namespace

bool has_ended(pid_t process) {
  if (process <= 0) return false;
  if (::kill(process, 0) == -1) return errno == ESRCH;
  const auto stat = stat_of(process);
  return stat && is_dead(*stat);
}

// A file on another file system may have the same inode number. So if several descriptors match, checks their mounts
// too.
std::vector<OpenDescriptor> descriptors_of(pid_t process, std::uint64_t shown_inode, int known) {
  std::vector<OpenDescriptor> found;
  if (process <= 0) return found;
  std::vector<int> numbers = numbers_of(process);
  if (numbers.size() > kMostSearched) numbers = {known};
  for (const int number : numbers) {
    const OpenDescriptor one = read_descriptor(process, number);
    if (one.inode == shown_inode && one.inode != 0) found.push_back(one);
  }
  if (found.size() < 2) return found;
  const auto text = read_proc(process, "mountinfo");
  const auto mounts = parse_mount_info(text ? std::string_view(*text) : std::string_view());
  std::erase_if(found, [&](const OpenDescriptor& one) {
    return std::none_of(mounts.begin(), mounts.end(), [&](const MountEntry& mount) {
      return mount.id == one.mount && is_fuse(mount);
    });
  });
  return found;
}

bool has_descriptor(pid_t process, const OpenDescriptor& descriptor) {
  const auto text = read_proc(process, fmt::format("fdinfo/{}", descriptor.number).c_str());
  if (!text) return !is_gone(text.error());
  return OpenDescriptor{descriptor.number, fdinfo_field(*text, "ino"),
                        fdinfo_field(*text, "mnt_id")} == descriptor;
}

// Tries several times: if the thread has sent the request but is not asleep yet, /proc shows only "running".
LockCallArguments lock_call_arguments(pid_t thread) {
  constexpr int kMostChecks = 20;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 200'000};
  for (int checks = 0; thread > 0 && checks < kMostChecks; ++checks) {
    const auto text =
        read_proc(thread, "syscall");  // the call's number and arguments: "72 0x3 0x7 …"
    if (!text) return {};
    const auto argument = [&](std::size_t at) {
      return std::strtoul(text->c_str() + at, nullptr, 16);
    };
    const auto descriptor = text->find("0x");
    const auto command = text->find("0x", descriptor + 2);
    if (command != text->npos)
      return {kind_of(argument(command)), static_cast<int>(argument(descriptor))};
    (void)::nanosleep(&kPause, nullptr);  // an interrupted pause is harmless
  }
  return {};
}

}  // namespace cacheshim
