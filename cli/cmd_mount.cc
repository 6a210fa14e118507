// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <system_error>

#include "cli/commands.h"
#include "cli/daemon_process.h"
#include "cli/failure.h"
#include "cli/mount_info.h"
#include "cli/paths.h"
#include "cli/setup.h"
#include "common/exit_codes.h"
#include "common/names.h"

namespace cacheshim::cli {
namespace {

struct MountArguments {
  DaemonArguments daemon;
  std::string mount_point;
  bool foreground = false;
};

[[noreturn]] void refuse(const std::string& why) {
  throw Failure(kExitUnavailable, why + "; nothing was mounted");
}

// A mount whose daemon has died is taken away; any other one is left alone.
void free_dead_mount(const std::string& path) {
  const auto mount = find_mount(read_mounts(), path);
  if (!mount) return;
  if (mount->type != kFilesystemType || !is_dead_mount(path)) {
    refuse(fmt::format("mount point '{}' is busy: a {} file system is mounted there", path,
                       mount->type));
  }
  if (::umount2(path.c_str(), MNT_DETACH) != 0) {
    refuse(fmt::format("cannot free the dead mount at '{}': {}", path,
                       std::generic_category().message(errno)));
  }
  print_line(fmt::format("freed the mount at '{}', whose daemon was dead; mounting anew", path));
  free_dead_mount(path);  // of several on top of each other
}

std::string check_mount_point(const std::string& given) {
  const std::string path = resolve_path(given);
  free_dead_mount(path);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    refuse(fmt::format("mount point '{}' cannot be used: {}{}", given,
                       std::generic_category().message(errno),
                       errno == ENOENT ? "; make the folder first" : ""));
  }
  if (!S_ISDIR(status.st_mode)) refuse(fmt::format("mount point '{}' is not a folder", given));
  return path;
}

void do_mount(const MountArguments& arguments) {
  DaemonOptions options = make_daemon_options(arguments.daemon, find_installation().profiles);
  options.mount_point = check_mount_point(arguments.mount_point);
  options.run_dir = run_dir(options.mount_point);
  if (arguments.foreground) {
    run_in_foreground(options);
  } else {
    (void)start_daemon(options, DaemonLife::kOnItsOwn);  // init reaps it in its time
  }
}

}  // namespace

void add_mount(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<MountArguments>();
  CLI::App* mount = app.add_subcommand(
      "mount", "Show a store of cache folders at MOUNTPOINT; returns once it is usable");
  mount->add_option("--store", arguments->daemon.store, "Folder that holds the caches")
      ->type_name("DIR")
      ->required();
  mount
      ->add_option("--layers", arguments->daemon.layers,
                   "Where jobs' own files go (default: STORE/.cacheshim/layers)")
      ->type_name("DIR");
  mount
      ->add_option("--config", arguments->daemon.config,
                   "Configuration (default: /etc/cacheshim/cacheshim.toml for root, else "
                   "~/.config/cacheshim/cacheshim.toml)")
      ->type_name("FILE");
  mount->add_option("-o", arguments->daemon.options, "Mount options, such as ro,noexec,noatime")
      ->type_name("OPT[,OPT...]")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',');
  mount->add_flag("--foreground", arguments->foreground, "Stay here and log to stderr");
  mount->add_option("MOUNTPOINT", arguments->mount_point, "Existing folder, usually /ci-cache")
      ->required();
  mount->footer(
      "A mount point whose daemon has died is freed and used again. Once mounted, the daemon logs to\n"
      "/run/cacheshim/MOUNT/log (not root: XDG_RUNTIME_DIR/cacheshim/MOUNT/log).\n"
      "Exit codes: 0 mounted, 2 unknown option or configuration key, 69 store, mount point or\n"
      "/dev/fuse not available (nothing was mounted then).");
  mount->callback([arguments, &exit_code] {
    do_mount(*arguments);
    exit_code = kExitSuccess;
  });
}

}  // namespace cacheshim::cli
