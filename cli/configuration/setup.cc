// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <system_error>
#include <utility>

#include "cli/configuration/config.h"
#include "cli/configuration/local_layers.h"
#include "cli/configuration/mount_options.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "common/exit_codes.h"
#include "common/mount_info.h"
#include "common/names.h"

namespace cacheshim::cli {
std::vector<Profile> load_all_profiles(const std::string& shipped, const std::string& config) {
  if (::access(shipped.c_str(), R_OK | X_OK) != 0) {
    throw Failure(kExitUnavailable,
                  fmt::format("cannot read the shipped profiles at '{}': {}; the installation is "
                              "not complete",
                              shipped, std::generic_category().message(errno)));
  }
  ProfileSet set = load_profiles(profile_directories(shipped, config));
  for (const ProfileError& refused : set.refused) {
    print_line(refused.message + "; going on without this profile");
  }
  return std::move(set.profiles);
}

std::string check_directory(std::string_view what, const std::string& path, int access) {
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
  const char* advice = error == ENOENT    ? "; make the directory first"
                       : error == ENOTDIR ? "; name a directory"
                                          : "";
  throw Failure(kExitUnavailable,
                fmt::format("cannot use the {} '{}': {}{}; nothing was mounted", what, path,
                            std::generic_category().message(error), advice));
}

namespace {

// Rejects a store that is in a cacheshim mount: each request to the second daemon would cause a
// request to the first.
void refuse_own_mount(const std::string& store) {
  const auto mounts = read_mounts();
  const MountEntry* above = nullptr;
  for (const MountEntry& mount : mounts) {
    const bool is_nearer = above == nullptr || mount.path.size() >= above->path.size();
    if (lies_in(store, mount.path) && is_nearer) above = &mount;
  }
  if (above == nullptr || above->type != kFilesystemType) return;
  const std::string version = fmt::format("{}/{}/version", above->path, kControlName);
  // A plain overlay lacks this file. A store may be in a plain overlay, as in any other directory.
  if (::access(version.c_str(), F_OK) != 0) return;
  throw Failure(
      kExitUsage,
      fmt::format("cannot use the store '{}': it is in the mount of a store, at '{}'; name "
                  "the directory that is mounted there; nothing was mounted",
                  store, above->path));
}

std::string layers_in(const std::string& store) {
  return fmt::format("{}/{}/layers", store, kControlName);
}

// Rejects layers in or above the store, except in STORE/.cacheshim/layers. All other directories of the store belong to
// the base, which all jobs see, or the daemon cleans them up.
void check_layers(const std::string& layers, const std::string& store) {
  if (lies_in(layers, layers_in(store))) return;
  const bool is_inside = lies_in(layers, store);
  if (!is_inside && !lies_in(store, layers)) return;
  throw Failure(
      kExitUsage,
      fmt::format("cannot keep layers in '{}': {} the store '{}', where jobs' unpublished "
                  "files would show as cache files; name a directory outside the store; "
                  "nothing was mounted",
                  layers, is_inside ? "it is in" : "it holds", store));
}

// Whether to mount the store read-only: the options contain `ro`, and the store cannot be written to. Throws Failure
// (unavailable) for a store on a read-only file system without -o ro.
bool is_for_reading(const std::string& store, unsigned long flags) {
  const std::string records = fmt::format("{}/{}", store, kControlName);
  const std::string& written = ::access(records.c_str(), F_OK) == 0 ? records : store;
  if (::faccessat(AT_FDCWD, written.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return false;
  if (errno != EROFS && errno != EACCES) return false;
  if ((flags & MS_RDONLY) != 0) return true;
  if (errno == EACCES) return false;  // the daemon will report the reason
  throw Failure(kExitUnavailable,
                fmt::format("cannot use the store '{}': cannot write to '{}': {}; mount it with -o "
                            "ro to read from it; nothing was mounted",
                            store, written, std::generic_category().message(errno)));
}

}  // namespace

DaemonOptions make_daemon_options(const DaemonArguments& arguments,
                                  const std::string& shipped_profiles) {
  DaemonOptions options;
  const MountOptions mount = parse_mount_options(arguments.options);
  options.mount_flags = mount.flags;
  options.owners = mount.owners;
  options.source = mount.source;
  const Config config = load_config(arguments.config);
  options.store_dir = check_directory("store", arguments.store, R_OK | X_OK);
  if (options.source.empty()) options.source = options.store_dir;
  refuse_own_mount(options.store_dir);
  options.is_store_read_only = is_for_reading(options.store_dir, mount.flags);
  const std::string& layers = arguments.layers.empty() ? config.layers : arguments.layers;
  if (!layers.empty() && resolve_path(layers) == layers_in(options.store_dir)) {
    options.layers_dir = "";  // the store creates this directory
  } else if (!layers.empty()) {
    options.layers_dir = check_directory("directory of layers", layers, R_OK | W_OK | X_OK);
    check_layers(options.layers_dir, options.store_dir);
  } else if (!options.is_store_read_only) {
    options.layers_dir = local_layers_for(options.store_dir);
  }
  options.profiles = load_all_profiles(shipped_profiles, arguments.config);
  options.publish = config.publish.value_or(options.publish);
  options.open_files = config.open_files.value_or(options.open_files);
  options.allow = config.allow;
  options.job_idle = config.job_idle.value_or(options.job_idle);
  options.layer_keep = config.layer_keep.value_or(options.layer_keep);
  options.flight_timeout = config.flight_timeout.value_or(options.flight_timeout);
  options.cuda_defaults = config.cuda_defaults;
  options.verify_on_open = config.verify_on_open.value_or(options.verify_on_open);
  options.limits = config.limits;
  options.gc = config.gc;
  options.gc_interval = config.gc_interval.value_or(options.gc_interval);
  const Installation installation = find_installation();
  options.remote = config.remote;
  options.remote_helper = installation.remote_helper;
  options.metrics = config.metrics;
  options.metrics_helper = installation.metrics_helper;
  options.watch = config.watch.value_or(options.watch);
  options.threads = config.threads.value_or(options.threads);
  options.io_uring = config.io_uring.value_or(options.io_uring);
  return options;
}

}  // namespace cacheshim::cli
