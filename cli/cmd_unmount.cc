// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <time.h>

#include <chrono>
#include <memory>
#include <string>
#include <system_error>

#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/mount_info.h"
#include "cli/mount_users.h"
#include "cli/paths.h"
#include "cli/progress.h"
#include "common/exit_codes.h"
#include "common/names.h"
#include "common/unique_fd.h"

namespace cacheshim::cli {
namespace {

constexpr std::chrono::seconds kDaemonDeadline{30};
constexpr std::chrono::seconds kLeaveDeadline{2};  // for those who were told to leave
constexpr long kPollNs = 20'000'000;

MountEntry find_our_mount(const std::string& path) {
  const auto mount = find_mount(read_mounts(), path);
  if (mount && mount->type == kFilesystemType) return *mount;
  throw Failure(kExitUnavailable,
                fmt::format("no cacheshim mount at '{}'; nothing was unmounted", path));
}

[[noreturn]] void fail_busy(const std::string& path, const MountEntry& mount) {
  const auto users = find_mount_users(mount);
  const std::string who = users.empty() ? "by something that /proc does not show to this user"
                                        : "by " + describe_users(users);
  throw Failure(kExitFailed, fmt::format("'{}' is in use {}; nothing was unmounted", path, who));
}

// False where it is in use.
bool try_detach(const std::string& path, int flags) {
  if (::umount2(path.c_str(), flags | UMOUNT_NOFOLLOW) == 0) return true;
  if (errno == EBUSY) return false;
  throw Failure(kExitFailed, fmt::format("cannot unmount '{}': {}; nothing was unmounted", path,
                                         std::generic_category().message(errno)));
}

bool ask_daemon(const std::string& path, const char* op) {
  try {
    (void)ControlClient(path).request({{"op", op}});
    return true;
  } catch (const Failure&) {
    return false;  // a plain overlay has nobody to ask; or it is in use indeed
  }
}

// Those who have it in use may only be waiting for a job's end: the daemon sends them home.
void detach_from_waiting(const std::string& path, const MountEntry& mount) {
  if (!ask_daemon(path, "close")) fail_busy(path, mount);
  const auto deadline = Progress::Clock::now() + kLeaveDeadline;
  while (!try_detach(path, 0)) {
    if (Progress::Clock::now() > deadline) {
      (void)ask_daemon(path, "reopen");
      fail_busy(path, mount);
    }
    const struct timespec pause = {0, kPollNs};
    (void)::nanosleep(&pause, nullptr);  // a signal only shortens it
  }
}

// The daemon holds its lock file for as long as it lives.
bool daemon_has_ended(const std::string& lock_path) {
  const UniqueFd lock(::open(lock_path.c_str(), O_RDONLY | O_CLOEXEC));
  return !lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

[[noreturn]] void fail_still_served(const std::string& path, const MountEntry& mount) {
  const auto users = find_other_namespaces(mount);
  const std::string why =
      users.empty() ? "is still finishing" : "still serves " + describe_users(users);
  throw Failure(
      kExitTimedOut,
      fmt::format("'{}' is unmounted here, but its daemon {}; it ends by itself", path, why));
}

void wait_for_daemon(const std::string& path, const MountEntry& mount) {
  const std::string folder = run_dir(path);
  if (folder.empty()) return;
  const auto deadline = Progress::Clock::now() + kDaemonDeadline;
  Progress progress;
  while (!daemon_has_ended(folder + "/lock")) {
    if (Progress::Clock::now() > deadline) {
      progress.finish();
      fail_still_served(path, mount);
    }
    progress.update("waiting for the daemon to end", 0, 0);
    const struct timespec pause = {0, kPollNs};
    (void)::nanosleep(&pause, nullptr);  // a signal only shortens it
  }
}

void unmount(const std::string& given) {
  const std::string path = resolve_path(given);
  const MountEntry mount = find_our_mount(path);
  if (is_dead_mount(path)) {
    (void)try_detach(path, MNT_DETACH);
    print_line(fmt::format("freed the mount at '{}', whose daemon was dead", path));
    return;
  }
  if (!try_detach(path, 0)) detach_from_waiting(path, mount);
  wait_for_daemon(path, mount);
}

}  // namespace

void add_unmount(CLI::App& app, int& exit_code) {
  auto path = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("unmount", "Take a mount away; waits until its daemon has finished");
  command->add_option("MOUNTPOINT", *path, "Where it is mounted")->required();
  command->footer(
      "Exit codes: 0 unmounted, 1 in use (nothing was unmounted), 69 no cacheshim mount there,\n"
      "75 unmounted, but the daemon has not ended within 30 s.");
  command->callback([path, &exit_code] {
    unmount(*path);
    exit_code = kExitSuccess;
  });
}

}  // namespace cacheshim::cli
