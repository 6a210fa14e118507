// SPDX-License-Identifier: Apache-2.0
//
// umount(2) returns when the mount is gone, but before its daemon has exited. Without the wait in this file, a mount
// immediately after an unmount failed in 10 of 100 cases, because the old daemon still held its locks.
#include "cli/mounting/predecessor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "cli/mounting/daemon_end.h"
#include "cli/progress.h"
#include "common/mount_info.h"
#include "common/names.h"
#include "common/unique_fd.h"

namespace cacheshim::cli {
namespace {

constexpr std::chrono::seconds kDeadline{10};
// Within this time, a daemon on a busy machine detects that its mount is gone.
constexpr std::chrono::seconds kNoticed{2};
constexpr std::chrono::milliseconds kPredecessorPoll{10};

// Whether the process sees a cacheshim mount at `mount_point` in its own mount namespace. Also
// returns true if /proc does not show the process's mounts, because the caller must not wait for a
// daemon without a reason.
bool still_has_mount(pid_t process, const std::string& mount_point) {
  std::ifstream file(fmt::format("/proc/{}/mountinfo", process));
  std::ostringstream text;
  if (!file.is_open() || !(text << file.rdbuf())) return true;
  const auto mount = find_mount(parse_mount_info(text.str()), mount_point);
  return mount && mount->type == kFilesystemType;
}

using Time = Progress::Clock::time_point;

void wait_for_run_dir(const DaemonOptions& options, Time start) {
  const DaemonEnd daemon(options.run_dir);
  if (daemon.holder() == 0 || still_has_mount(daemon.holder(), options.mount_point)) return;
  Progress progress;
  while (!daemon.wait(kPredecessorPoll) && Progress::Clock::now() < start + kDeadline) {
    progress.update("waiting for the daemon that was here before to end", 0, 0);
  }
}

// Returns true if no process holds a flock(2) on the directory, or if the directory cannot be
// opened. Takes and releases the lock.
bool is_free(const std::string& path) {
  const UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return !directory || ::flock(directory.get(), LOCK_EX | LOCK_NB) == 0;
}

void wait_for_directories(const OverlayDirectories& directories, Time start) {
  Progress progress;
  while (!is_free(directories.upper) || !is_free(directories.work)) {
    const auto waited = Progress::Clock::now() - start;
    const bool is_mounted = !is_free(directories.work + "/work");  // a mounted overlay locks it (PlainOverlay::served)
    if (waited > (is_mounted ? kNoticed : kDeadline)) return;
    progress.update("waiting for the overlay that had these directories before to end", 0, 0);
    std::this_thread::sleep_for(kPredecessorPoll);
  }
}

}  // namespace

void wait_for_predecessor(const DaemonOptions& options) {
  const auto start = Progress::Clock::now();
  if (!options.run_lock) wait_for_run_dir(options, start);
  const bool has_upper = options.overlay && !options.overlay->upper.empty();
  if (has_upper) wait_for_directories(*options.overlay, start);
}

}  // namespace cacheshim::cli
