// SPDX-License-Identifier: Apache-2.0
//
// The helpers of mount(8) and umount(8) for an existing mount: mount.fuse.cacheshim performs `mount
// -o remount`, umount.fuse.cacheshim unmounts. umount(2) returns before the daemon has exited. The
// umount helper waits for the daemon, so that its caller can immediately mount again, or unmount the
// file system below the mount.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/configuration/mount_options.h"
#include "cli/failure.h"
#include "cli/mounting/daemon_end.h"
#include "cli/mounting/mount_users.h"
#include "cli/paths.h"
#include "cli/progress.h"
#include "common/exit_codes.h"
#include "common/mount_info.h"
#include "common/names.h"
#include "common/unique_fd.h"

namespace cacheshim::cli {
namespace {

constexpr int kUmountFailed = 32;  // the exit code of umount(8) if an unmount fails
constexpr std::chrono::seconds kDeadline{30};
// If the daemon takes longer, the helper checks whether the file system is still mounted elsewhere.
constexpr std::chrono::seconds kElsewhere{1};
constexpr std::chrono::milliseconds kMountPoll{20};

struct UmountArguments {
  std::string path;
  bool lazy = false;
  bool force = false;
  bool read_only = false;
};

MountEntry find_mount_to(const char* action, const std::string& path, int exit_code) {
  const auto mount = find_mount(read_mounts(), path);
  if (mount && mount->type == kFilesystemType) return *mount;
  throw Failure(exit_code, fmt::format("no cacheshim mount at '{}'; nothing was {}", path, action));
}

std::string reason() { return std::generic_category().message(errno); }

int change_flags(const MountEntry& mount, unsigned long flags) {
  const std::string type(kFilesystemType);
  return ::mount("cacheshim", mount.path.c_str(), type.c_str(), MS_REMOUNT | flags, "");
}

bool is_of_store(const std::string& path) {
  return ::access(fmt::format("{}/{}/version", path, kControlName).c_str(), F_OK) == 0;
}

// mount(8) merges the given options with the options of the fstab line or of the mount, and passes all of them to the
// helper. This function ignores options that cannot change for an existing mount.
unsigned long wanted_flags(const std::vector<std::string>& texts, bool is_store) {
  MountOptions options = default_mount_options();
  if (!is_store && is_real_root()) options.flags = 0;  // the defaults of mount.fuse.cacheshim
  for (const std::string& word : split_options(texts)) {
    if (word != "remount") (void)apply_mount_option(word, options);
  }
  return options.flags;
}

// Whether the daemon accepts changes, that is, has layers or an upperdir. Sends a request to the
// daemon, because nothing else shows this.
bool takes_changes(const std::string& path, bool is_store) {
  if (is_store) {
    std::ifstream file(fmt::format("{}/{}/status", path, kControlName));
    const auto status = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    return !status.is_object() || status.value("layers", "?") != "";
  }
  const UniqueFd file(::open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  return file || errno != EROFS;
}

void remount(const std::string& given, const std::vector<std::string>& texts) {
  const std::string path = resolve_path(given);
  const MountEntry mount = find_mount_to("changed", path, kExitUnavailable);
  const bool is_store = is_of_store(path);
  const unsigned long flags = wanted_flags(texts, is_store);
  if (change_flags(mount, flags) != 0) {
    const std::string who = errno == EBUSY ? " (files are open for writing)" : "";
    throw Failure(kExitFailed, fmt::format("cannot remount '{}': {}{}; nothing was changed", path,
                                           reason(), who));
  }
  if ((flags & MS_RDONLY) != 0 || takes_changes(path, is_store)) return;
  (void)change_flags(mount, flags | MS_RDONLY);
  throw Failure(kExitFailed,
                fmt::format("cannot remount '{}' for writing: {}; it stays read-only", path,
                            is_store ? "its store cannot be written to" : "it has no upperdir"));
}

[[noreturn]] void fail_busy(const MountEntry& mount) {
  const auto users = find_mount_users(mount);
  const std::string who = users.empty() ? "" : " by " + describe_users(users);
  throw Failure(kUmountFailed,
                fmt::format("'{}' is in use{}; nothing was unmounted", mount.path, who));
}

// Returns false if the mount still exists and is now read-only.
bool detach(const MountEntry& mount, const UmountArguments& arguments) {
  const int flags = (arguments.lazy ? MNT_DETACH : 0) | (arguments.force ? MNT_FORCE : 0);
  if (::umount2(mount.path.c_str(), flags | UMOUNT_NOFOLLOW) == 0) return true;
  if (errno != EBUSY) {
    throw Failure(kUmountFailed, fmt::format("cannot unmount '{}': {}; nothing was unmounted",
                                             mount.path, reason()));
  }
  const bool is_kept = arguments.read_only &&
                       change_flags(mount, wanted_flags({mount.options}, false) | MS_RDONLY) == 0;
  if (!is_kept) fail_busy(mount);
  print_line(fmt::format("'{}' is in use; it was remounted read-only", mount.path));
  return false;
}

// Whether the file system is still mounted elsewhere: bound to another path, or in another
// namespace.
bool is_mounted_elsewhere(const MountEntry& mount) {
  for (const MountEntry& other : read_mounts()) {
    if (other.device == mount.device) return true;
  }
  return !find_other_namespaces(mount).empty();
}

void wait_for_daemon(const MountEntry& mount, const DaemonEnd& daemon, bool lazy) {
  const auto start = Progress::Clock::now();
  bool has_asked = false;
  Progress progress;
  while (!daemon.wait(kMountPoll)) {
    const auto waited = Progress::Clock::now() - start;
    if (waited > kElsewhere && (lazy || (!has_asked && is_mounted_elsewhere(mount)))) return;
    has_asked = waited > kElsewhere;
    if (waited > kDeadline) {
      progress.finish();
      print_line(
          fmt::format("'{}' is unmounted, but its daemon is still finishing; it ends by "
                      "itself",
                      mount.path));
      return;
    }
    progress.update("waiting for the daemon to end", 0, 0);
  }
}

void umount_as_helper(const UmountArguments& arguments) {
  // umount(8) has resolved the path. Resolving it again could wait for a daemon that hangs.
  const bool is_absolute = arguments.path.starts_with('/');
  const std::string path = is_absolute ? arguments.path : resolve_path(arguments.path);
  const MountEntry mount = find_mount_to("unmounted", path, kUmountFailed);
  const DaemonEnd daemon(run_dir(path));
  if (detach(mount, arguments)) wait_for_daemon(mount, daemon, arguments.lazy);
}

void add_remount(CLI::App& app, int& exit_code) {
  struct Arguments {
    std::vector<std::string> options;
    std::string path;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("remount", "mount -o remount")->group("");
  command->add_option("-o", arguments->options)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("MOUNTPOINT", arguments->path)->required();
  command->callback([arguments, &exit_code] {
    remount(arguments->path, arguments->options);
    exit_code = kExitSuccess;
  });
}

void add_umount(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<UmountArguments>();
  CLI::App* command = app.add_subcommand("umount-as-helper", "umount(8)")->group("");
  command->add_flag("-l", arguments->lazy);
  command->add_flag("-f", arguments->force);
  command->add_flag("-r", arguments->read_only);
  command->add_option("MOUNTPOINT", arguments->path)->required();
  command->callback([arguments, &exit_code] {
    umount_as_helper(*arguments);
    exit_code = kExitSuccess;
  });
}

}  // namespace

void add_mount8_helpers(CLI::App& app, int& exit_code) {
  add_remount(app, exit_code);
  add_umount(app, exit_code);
}

}  // namespace cacheshim::cli
