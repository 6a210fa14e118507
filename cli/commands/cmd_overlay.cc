// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/configuration/overlay_options.h"
#include "cli/configuration/setup.h"
#include "cli/failure.h"
#include "cli/mounting/daemon_process.h"
#include "cli/mounting/mount_point.h"
#include "cli/mounting/predecessor.h"
#include "cli/paths.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

struct OverlayArguments {
  std::vector<std::string> options;
  std::string mount_point;
  bool foreground = false;
};

// Makes the paths absolute, because the daemon has another working directory.
OverlayDirectories resolve(const OverlayDirectories& given) {
  OverlayDirectories directories;
  for (const std::string& lower : given.lowers) {
    directories.lowers.push_back(check_directory("lowerdir", lower, R_OK | X_OK));
  }
  if (given.upper.empty()) return directories;
  directories.upper = check_directory("upperdir", given.upper, R_OK | W_OK | X_OK);
  directories.work = check_directory("workdir", given.work, R_OK | W_OK | X_OK);
  if (lies_in(directories.upper, directories.work) ||
      lies_in(directories.work, directories.upper)) {
    throw Failure(kExitUsage,
                  fmt::format("'upperdir={}' and 'workdir={}' must not contain each other",
                              given.upper, given.work));
  }
  for (const std::string& lower : directories.lowers) {
    if (!lies_in(lower, directories.upper) && !lies_in(lower, directories.work)) continue;
    throw Failure(kExitUsage,
                  fmt::format("'lowerdir={}' must not lie in upperdir or workdir", lower));
  }
  return directories;
}

// Checks only the directories that the daemon writes to. The mount point may be a lower directory,
// or contain any of the directories: the mount then hides them from other processes, but not from
// the daemon.
void check_mount_is_outside(const std::string& mount_point, const OverlayDirectories& directories) {
  if (directories.upper.empty()) return;
  if (lies_in(mount_point, directories.upper))
    check_apart(mount_point, "upperdir", directories.upper);
  if (lies_in(mount_point, directories.work)) check_apart(mount_point, "workdir", directories.work);
}

void print_ignored(std::string_view why, const std::vector<std::string>& words) {
  if (words.empty()) return;
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  print_line(fmt::format("{}: {}", why, all));
}

void mount_overlay(const OverlayArguments& arguments) {
  const OverlayOptions wanted = parse_overlay_options(arguments.options, is_real_root());
  DaemonOptions options;
  options.overlay = resolve(wanted.directories);
  options.mount_flags = wanted.mount.flags;
  options.owners = wanted.mount.owners;
  if (!wanted.mount.source.empty()) options.source = wanted.mount.source;
  check_mount_is_outside(resolve_path(arguments.mount_point), *options.overlay);
  options.mount_point = check_mount_point(arguments.mount_point, wanted.mount.may_be_nonempty);
  options.run_dir = run_dir(options.mount_point);
  print_ignored("ignored, as it has no meaning here", wanted.ignored);
  print_ignored("ignored, as only root may set it", wanted.denied);
  wait_for_predecessor(options);
  mount_and_serve(options, arguments.foreground);
}

}  // namespace

void add_overlay(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<OverlayArguments>();
  CLI::App* overlay = app.add_subcommand(
      "overlay",
      "Merge directories at MOUNTPOINT and write changes to another directory, without a store or jobs");
  overlay->add_option("-o", arguments->options, "Options of fuse-overlayfs (see below)")
      ->type_name("OPT[,OPT...]")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->required();
  overlay->add_flag("--foreground", arguments->foreground,
                    "Stay in the foreground and log to stderr");
  overlay->add_option("MOUNTPOINT", arguments->mount_point, "Existing, empty directory")
      ->check(refuse_empty_path)
      ->required();
  overlay->footer(
      "Options of -o:\n"
      "  lowerdir=L1[:L2...]    the directories to merge, L1 on top; write '\\:' for a ':' in a name\n"
      "  upperdir=U,workdir=W   the directory for changes, and an empty one on its file system (neither: read-only)\n"
      "  owner=keep             real owners, modes and ACLs, checked for each caller (default)\n"
      "  owner=squash           everything belongs to the user who mounts\n"
      "  squash_to_root, squash_to_uid=N, squash_to_gid=N   show all objects with this owner or group\n"
      "  noacl                  ignore POSIX ACLs\n"
      "  ro, noexec, noatime, suid, dev and others of mount(8); nosuid and nodev are the default,\n"
      "                         and only root can turn them off\n"
      "  nonempty               allow a mount point that is not empty: the mount hides its contents\n"
      "  fsname=NAME            the source that mountinfo shows\n"
      "  threaded=, fast_ino=, volatile and other options of fuse-overlayfs are ignored\n"
      "Exit codes: 0 mounted; 2 invalid options; 69 a directory, the mount point or /dev/fuse is not\n"
      "available (nothing was mounted). `cacheshim unmount` or umount(8) ends the mount.");
  overlay->callback([arguments, &exit_code] {
    mount_overlay(*arguments);
    exit_code = kExitSuccess;
  });
}

}  // namespace cacheshim::cli
