// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "cli/commands/commands.h"
#include "cli/configuration/mount_options.h"
#include "cli/configuration/setup.h"
#include "cli/failure.h"
#include "cli/mounting/daemon_process.h"
#include "cli/mounting/mount_point.h"
#include "cli/mounting/predecessor.h"
#include "cli/mounting/standby.h"
#include "cli/paths.h"
#include "cli/run_environment.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

struct MountArguments {
  DaemonArguments daemon;
  std::string mount_point;
  bool foreground = false;
  bool standby = false;
};

// Waits as a standby. Returns true if this process must mount, and false if the mount was closed
// for good.
bool stand_by(const std::string& mount_point, DaemonOptions& options) {
  UniqueFd lock;
  if (wait_as_standby(run_dir(resolve_path(mount_point)), options.cycle, lock) ==
      StandbyEnd::kClosed) {
    print_line(
        fmt::format("the mount at '{}' is closed for good; nothing to stand by for", mount_point));
    return false;
  }
  if (lock) options.run_lock = std::make_shared<UniqueFd>(std::move(lock));
  return true;
}

std::string choose_mount_point(const MountArguments& arguments, const DaemonOptions& options) {
  const std::string path = resolve_path(arguments.mount_point);
  check_apart(path, "store", options.store_dir);
  if (!options.layers_dir.empty()) check_apart(path, "directory of layers", options.layers_dir);
  // A standby takes over unattended, at a path that has been a mount point before, so the directory need not be empty.
  const bool may_be_nonempty =
      arguments.standby || parse_mount_options(arguments.daemon.options).may_be_nonempty;
  return check_mount_point(arguments.mount_point, may_be_nonempty);
}

void do_mount(const MountArguments& arguments) {
  DaemonOptions options = make_daemon_options(arguments.daemon, find_installation().profiles);
  options.cycle = choose_cycle("").view();
  if (arguments.standby && !stand_by(arguments.mount_point, options)) return;
  options.mount_point = choose_mount_point(arguments, options);
  options.run_dir = run_dir(options.mount_point);
  wait_for_predecessor(options);
  mount_and_serve(options, arguments.foreground || arguments.standby);
}

void add_daemon_options(CLI::App& mount, DaemonArguments& arguments) {
  mount.add_option("--store", arguments.store, "Directory that holds the caches")
      ->type_name("DIR")
      ->check(refuse_empty_path)
      ->required();
  mount
      .add_option("--layers", arguments.layers,
                  "Directory for the jobs' layers (default: STORE/.cacheshim/layers; a directory of this "
                  "machine if other machines can change the store's file system)")
      ->type_name("DIR");
  mount
      .add_option("--config", arguments.config,
                  "Configuration file (default: /etc/cacheshim/cacheshim.toml for root, "
                  "~/.config/cacheshim/cacheshim.toml for others)")
      ->type_name("FILE");
  mount.add_option("-o", arguments.options, "Mount options, such as ro,noexec,noatime,owner=keep")
      ->type_name("OPT[,OPT...]")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

constexpr const char* kMountFooter =
    "The mount point must be separate from the store, and must be empty (or use -o nonempty). If an\n"
    "earlier mount's daemon has died, mount frees the mount point. If an earlier daemon is still\n"
    "finishing, mount waits for at most 10 s. With -o ro, the store may be read-only too. The daemon logs to\n"
    "/run/cacheshim/MOUNT/log (for users other than root: XDG_RUNTIME_DIR/cacheshim/MOUNT/log).\n"
    "A standby exits with 0 when unmount or SIGTERM closes the mount for good in the standby's own\n"
    "cycle (CACHESHIM_CYCLE), or if the mount was closed before the standby started.\n"
    "Exit codes: 0 mounted; 2 unknown option or configuration key, or the store, the layers and the mount\n"
    "point lie inside one another; 69 the store, the mount point or /dev/fuse is not available (nothing was\n"
    "mounted).";

}  // namespace

void add_mount(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<MountArguments>();
  CLI::App* mount = app.add_subcommand(
      "mount", "Show a store of cache directories at MOUNTPOINT; return once the mount is usable");
  add_daemon_options(*mount, arguments->daemon);
  mount->add_flag("--foreground", arguments->foreground, "Stay in the foreground and log to stderr");
  mount->add_flag("--standby", arguments->standby,
                  "Stay in the foreground; mount again when the serving daemon dies");
  mount
      ->add_option("MOUNTPOINT", arguments->mount_point,
                   "Existing, empty directory, usually /ci-cache")
      ->check(refuse_empty_path)
      ->required();
  mount->footer(kMountFooter);
  mount->callback([arguments, &exit_code] {
    do_mount(*arguments);
    exit_code = kExitSuccess;
  });
}

}  // namespace cacheshim::cli
