// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/daemon_process.h"
#include "cli/mount_point.h"
#include "cli/paths.h"
#include "cli/setup.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

struct MountArguments {
  DaemonArguments daemon;
  std::string mount_point;
  bool foreground = false;
};

void do_mount(const MountArguments& arguments) {
  DaemonOptions options = make_daemon_options(arguments.daemon, find_installation().profiles);
  options.mount_point = check_mount_point(arguments.mount_point);
  options.run_dir = run_dir(options.mount_point);
  mount_and_serve(options, arguments.foreground);
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
  mount
      ->add_option("-o", arguments->daemon.options,
                   "Mount options, such as ro,noexec,noatime,owner=keep")
      ->type_name("OPT[,OPT...]")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
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
