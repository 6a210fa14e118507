// SPDX-License-Identifier: Apache-2.0
#include "cli/mounting/dead_mount.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "cli/paths.h"
#include "common/kernel_locks.h"
#include "common/names.h"

namespace cacheshim::cli {
namespace {

constexpr std::chrono::milliseconds kHandOver{300};
constexpr std::chrono::milliseconds kDeadMountPoll{20};

bool is_owned_by(pid_t process, uid_t uid) {
  struct stat st {};
  return ::stat(fmt::format("/proc/{}", process).c_str(), &st) == 0 && st.st_uid == uid;
}

// Returns a process of the run directory's owner that holds the lock or waits for it; if `waits_only`
// is true, one that waits. Processes of other users do not count: they may be able to lock the file,
// but do not mount anything.
pid_t find_owners_process(const std::string& lock_file, bool waits_only) {
  struct stat st {};
  if (::stat(lock_file.c_str(), &st) == -1) return 0;
  std::ostringstream table;
  table << std::ifstream("/proc/locks").rdbuf();
  for (const KernelLock& lock : kernel_locks(table.str(), st.st_dev, st.st_ino)) {
    const bool is_wanted = lock.is_flock && (lock.waits || !waits_only);
    if (is_wanted && is_owned_by(lock.process, st.st_uid)) return lock.process;
  }
  return 0;
}

// Searches two run directories, because the daemon may run as root although the caller is another
// user.
pid_t find_process(const std::string& mount_point, bool waits_only) {
  for (const std::string& directory : {run_dir(mount_point), run_dir_of_root(mount_point)}) {
    if (directory.empty()) continue;
    const std::string lock_file = fmt::format("{}/{}", directory, kRunLockFile);
    if (const pid_t process = find_owners_process(lock_file, waits_only)) return process;
  }
  return 0;
}

}  // namespace

// Polls for a while: after the kernel has released the dead daemon's lock, a process that waited for
// the lock gets it only when the process runs again. Until then, /proc/locks does not show the
// process. On a busy machine this takes tens of milliseconds.
pid_t find_successor(const std::string& mount_point) {
  const auto deadline = std::chrono::steady_clock::now() + kHandOver;
  pid_t process = find_process(mount_point, false);
  while (process == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kDeadMountPoll);
    process = find_process(mount_point, false);
  }
  return process;
}

pid_t find_standby(const std::string& mount_point) { return find_process(mount_point, true); }

std::string dead_mount_advice(const std::string& mount_point) {
  if (const pid_t successor = find_successor(mount_point)) {
    return fmt::format("a standby (process {}) is mounting it again: try again in a moment",
                       successor);
  }
  return fmt::format("free the mount with 'cacheshim unmount {}' and mount it again", mount_point);
}

std::string hung_mount_advice(const std::string& mount_point) {
  constexpr const char* kLogAdvice = "look into its log (RUN_DIR/log, docs/doctor.md); ";
  if (const pid_t standby = find_standby(mount_point)) {
    return fmt::format("{}if you kill the daemon, the standby (process {}) mounts it again",
                       kLogAdvice, standby);
  }
  return fmt::format("{}'umount -l' frees the mount point", kLogAdvice);
}

}  // namespace cacheshim::cli
