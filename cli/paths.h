// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cacheshim::cli {

// The files that were installed with the running program. They are found relative to the program's
// own path, so the whole prefix may be moved.
struct Installation {
  std::string library;   // PREFIX/LIBDIR/libcacheshim.so; LIBDIR is Meson's option, for example "lib"
  std::string profiles;  // PREFIX/share/cacheshim/profiles
  std::string remote_helper;  // PREFIX/LIBEXECDIR/cacheshim/cacheshim-remote
  std::string metrics_helper;  // PREFIX/LIBEXECDIR/cacheshim/cacheshim-metrics
};

Installation find_installation();

// Returns the value of a variable, or nothing if it is unset or empty.
std::optional<std::string> find_variable(std::string_view name);
// Whether a switch is on. As in the library, any value except "0" and the empty string turns it on.
bool is_switched_on(std::string_view name);

// Returns /etc/cacheshim for root, XDG_CONFIG_HOME/cacheshim (default: ~/.config/cacheshim) for other users; empty if
// there is none.
std::string config_dir();

// Returns the directories of profiles: the shipped profiles, profiles.d in config_dir(), and
// profiles.d beside the given configuration file, if any. A profile in a later directory replaces
// the profile of the same name in an earlier directory.
std::vector<std::string> profile_directories(const std::string& shipped,
                                             const std::string& config = "");

// Returns the run directory of a mount at `mount_point`; empty if this user has no place for it.
std::string run_dir(std::string_view mount_point);
// As run_dir(), but always for root's daemon, whichever user calls.
std::string run_dir_of_root(std::string_view mount_point);

// Returns `path` made absolute, without "." and "..". Resolves symlinks, except in a last component
// that does not exist or cannot be checked, such as a dead mount. If the parent directory does not
// exist, resolves no symlinks at all.
std::string resolve_path(const std::string& path);

// Whether `path` is `directory` or below it. Requires: both come from resolve_path().
bool lies_in(std::string_view path, std::string_view directory);

// Whether this process is root outside of any user namespace.
bool is_real_root();

// Returns the message that there is no mount at a path.
std::string no_mount_text(const std::string& mount);

// Returns the mount that a command refers to: --mount, otherwise CACHESHIM_MOUNT, otherwise /ci-cache. Root uses the
// mount that CACHESHIM_MOUNT names only if root has mounted it, because the variable may come from another user through
// sudo (common/root_process.h). If root has not mounted it, throws Failure (unavailable).
std::string chosen_mount(const std::string& option);
// As chosen_mount(), but returns a path on which the command mounts. Throws Failure (usage) if
// CACHESHIM_MOUNT may come from another user.
std::string chosen_mount_point(const std::string& option);

}  // namespace cacheshim::cli
