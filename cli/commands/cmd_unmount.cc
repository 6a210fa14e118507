// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fmt/format.h>
#include <sys/mount.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/mounting/daemon_end.h"
#include "cli/mounting/dead_mount.h"
#include "cli/mounting/mount_point.h"
#include "cli/mounting/mount_users.h"
#include "cli/mounting/utab.h"
#include "cli/paths.h"
#include "cli/progress.h"
#include "common/exit_codes.h"
#include "common/mount_info.h"
#include "common/names.h"

namespace cacheshim::cli {
namespace {

constexpr std::chrono::seconds kDaemonDeadline{30};
// The time that processes get to leave the mount after the daemon has failed their requests.
constexpr std::chrono::seconds kLeaveDeadline{2};
// Added to the time limit of the request `close`, so that the daemon does not reopen the mount early.
constexpr std::chrono::seconds kMargin{5};
constexpr std::chrono::milliseconds kUnmountPoll{20};

MountEntry find_our_mount(const std::string& path) {
  const auto mount = find_mount(read_mounts(), path);
  if (mount && mount->type == kFilesystemType) return *mount;
  throw Failure(kExitUnavailable,
                fmt::format("no cacheshim mount at '{}'; nothing was unmounted", path));
}

[[noreturn]] void fail_busy(const std::string& path, const std::vector<MountUser>& users) {
  const std::string who = users.empty() ? "by something that /proc does not show to this user"
                                        : "by " + describe_users(users);
  throw Failure(kExitFailed, fmt::format("'{}' is in use {}; nothing was unmounted", path, who));
}

// Returns false if the mount is in use.
bool try_detach(const std::string& path, int flags) {
  if (::umount2(path.c_str(), flags | UMOUNT_NOFOLLOW) == 0) return true;
  if (errno == EBUSY) return false;
  throw Failure(kExitFailed, fmt::format("cannot unmount '{}': {}; nothing was unmounted", path,
                                         std::generic_category().message(errno)));
}

// Returns nothing if the request fails, for example because a plain overlay has no control
// directory, or because processes keep using the mount.
std::optional<nlohmann::json> ask_daemon(const std::string& path, const nlohmann::json& request) {
  try {
    return ControlClient(path).request(request);
  } catch (const Failure&) {
    return std::nullopt;
  }
}

// Returns the processes that use the mount, except those that only wait for a lock or a reply of
// the daemon.
std::vector<MountUser> find_working_users(const std::string& path, const MountEntry& mount) {
  std::vector<MountUser> users = find_mount_users(mount);
  const auto waiting = ask_daemon(path, {{"op", "waiting"}});
  const nlohmann::json pids =
      waiting ? waiting->value("processes", nlohmann::json::array()) : nlohmann::json::array();
  std::erase_if(users, [&](const MountUser& user) {
    return user.is_client || std::find(pids.begin(), pids.end(), user.pid) != pids.end();
  });
  return users;
}

// Detaches a mount that is in use. If its users only wait for the daemon, the daemon fails their
// requests. With a grace time, the daemon does so even if other processes use the mount, and this
// function waits for these processes.
void detach_from_users(const std::string& path, const MountEntry& mount,
                       std::chrono::seconds grace) {
  const bool is_wanted_anyway = grace.count() > 0;
  const auto working = find_working_users(path, mount);
  if (!working.empty() && !is_wanted_anyway) fail_busy(path, working);
  const auto time = std::max(grace, kLeaveDeadline);
  if (!ask_daemon(
          path,
          {{"op", "close"}, {"in_use", is_wanted_anyway}, {"seconds", (time + kMargin).count()}})) {
    fail_busy(path, find_mount_users(mount));
  }
  const auto deadline = Progress::Clock::now() + time;
  Progress progress;
  while (!try_detach(path, 0)) {
    if (Progress::Clock::now() > deadline) {
      progress.finish();
      (void)ask_daemon(path, {{"op", "reopen"}});
      fail_busy(path, find_mount_users(mount));
    }
    progress.update("waiting for the users of the mount", 0, 0);
    std::this_thread::sleep_for(kUnmountPoll);
  }
}

[[noreturn]] void fail_still_served(const std::string& path, const MountEntry& mount) {
  const auto users = find_other_namespaces(mount);
  const std::string why =
      users.empty() ? "is still finishing" : "still serves " + describe_users(users);
  throw Failure(
      kExitTimedOut,
      fmt::format("'{}' is unmounted here, but its daemon {}; it ends by itself", path, why));
}

void wait_for_daemon(const std::string& path, const MountEntry& mount, const DaemonEnd& daemon) {
  const auto deadline = Progress::Clock::now() + kDaemonDeadline;
  Progress progress;
  while (!daemon.wait(kUnmountPoll)) {
    if (Progress::Clock::now() > deadline) {
      progress.finish();
      fail_still_served(path, mount);
    }
    progress.update("waiting for the daemon to end", 0, 0);
  }
}

// Frees the mount of a dead daemon; throws Failure if a standby is mounting it again. Does not
// record that the mount is closed for good, so a standby that starts later takes over.
void free_dead(const std::string& path) {
  const pid_t successor = find_successor(path);
  if (successor != 0) {
    throw Failure(kExitFailed,
                  fmt::format("the daemon of the mount at '{}' is dead, and a standby (process {}) "
                              "is mounting it again; nothing was unmounted: try again in a moment",
                              path, successor));
  }
  (void)try_detach(path, MNT_DETACH);
  forget_mount(path);
  print_line(fmt::format("freed the mount at '{}', whose daemon was dead", path));
}

void unmount(const std::string& given, std::chrono::seconds grace) {
  const std::string path = resolve_path(given);
  const MountEntry mount = find_our_mount(path);
  if (is_dead_mount(path)) {
    free_dead(path);
    return;
  }
  const DaemonEnd daemon(run_dir(path));
  if (!try_detach(path, 0)) detach_from_users(path, mount, grace);
  forget_mount(path);
  wait_for_daemon(path, mount, daemon);
}

}  // namespace

void add_unmount(CLI::App& app, int& exit_code) {
  struct Arguments {
    std::string path;
    std::int64_t grace = 0;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("unmount", "Unmount, and wait until the daemon has finished");
  command
      ->add_option("--grace", arguments->grace,
                   "If the mount is in use, fail waiting requests and give its users S seconds to leave")
      ->type_name("S")
      ->check(CLI::Range(0, 86400));
  command->add_option("MOUNTPOINT", arguments->path, "The mount point")
      ->check(refuse_empty_path)
      ->required();
  command->footer(
      "Processes that only wait for a lock get ENOLCK, and commands that only wait for a job's end return.\n"
      "With --grace this happens even if other processes use the mount; if they stay longer than S seconds,\n"
      "the mount remains unchanged. Exit codes: 0 unmounted; 1 in use (nothing was unmounted); 69 no\n"
      "cacheshim mount there; 75 unmounted, but the daemon has not ended within 30 s.");
  command->callback([arguments, &exit_code] {
    unmount(arguments->path, std::chrono::seconds(arguments->grace));
    exit_code = kExitSuccess;
  });
}

}  // namespace cacheshim::cli
