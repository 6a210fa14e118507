// SPDX-License-Identifier: Apache-2.0
#include "cli/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <system_error>
#include <utility>

#include "cli/config.h"
#include "cli/failure.h"
#include "cli/mount_options.h"
#include "cli/paths.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
std::vector<Profile> load_all_profiles(const std::string& shipped) {
  if (::access(shipped.c_str(), R_OK | X_OK) != 0) {
    throw Failure(kExitUnavailable,
                  fmt::format("cannot read the shipped profiles at '{}': {}; the installation is "
                              "not complete",
                              shipped, std::generic_category().message(errno)));
  }
  std::vector<std::string> folders = {shipped};
  if (const std::string own = config_dir(); !own.empty()) folders.push_back(own + "/profiles.d");
  ProfileSet set = load_profiles(folders);
  for (const ProfileError& refused : set.refused) {
    print_line(refused.message + "; going on without this profile");
  }
  return std::move(set.profiles);
}

std::string check_folder(std::string_view what, const std::string& path, int access) {
  const std::string resolved = resolve_path(path);
  struct stat status {};
  int error = 0;
  if (::stat(resolved.c_str(), &status) != 0) {
    error = errno;
  } else if (!S_ISDIR(status.st_mode)) {
    error = ENOTDIR;
  } else if (::faccessat(AT_FDCWD, resolved.c_str(), access, AT_EACCESS) != 0) {
    error = errno;
  }
  if (error == 0) return resolved;
  const char* advice = error == ENOENT    ? "; make the folder first"
                       : error == ENOTDIR ? "; name a folder"
                                          : "";
  throw Failure(kExitUnavailable,
                fmt::format("cannot use the {} '{}': {}{}; nothing was mounted", what, path,
                            std::generic_category().message(error), advice));
}

DaemonOptions make_daemon_options(const DaemonArguments& arguments,
                                  const std::string& shipped_profiles) {
  DaemonOptions options;
  const MountOptions mount = parse_mount_options(arguments.options);
  options.mount_flags = mount.flags;
  options.owners = mount.owners;
  const Config config = load_config(arguments.config);
  options.store_dir = check_folder("store", arguments.store, R_OK | X_OK);
  const std::string& layers = arguments.layers.empty() ? config.layers : arguments.layers;
  if (!layers.empty()) {
    options.layers_dir = check_folder("folder of layers", layers, R_OK | W_OK | X_OK);
  }
  options.profiles = load_all_profiles(shipped_profiles);
  options.publish = config.publish.value_or(options.publish);
  options.allow = config.allow;
  options.job_idle = config.job_idle.value_or(options.job_idle);
  options.layer_keep = config.layer_keep.value_or(options.layer_keep);
  options.flight_timeout = config.flight_timeout.value_or(options.flight_timeout);
  options.cuda_defaults = config.cuda_defaults;
  options.verify_on_open = config.verify_on_open.value_or(options.verify_on_open);
  options.gc = config.gc;
  options.gc_interval = config.gc_interval.value_or(options.gc_interval);
  options.watch = config.watch.value_or(options.watch);
  options.threads = config.threads.value_or(options.threads);
  options.io_uring = config.io_uring.value_or(options.io_uring);
  return options;
}

}  // namespace cacheshim::cli
