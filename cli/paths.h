// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cacheshim::cli {

// What was installed together with the running program; found from the program's own place, so that
// a moved prefix works.
struct Installation {
  std::string library;   // PREFIX/lib/libcacheshim.so
  std::string profiles;  // PREFIX/share/cacheshim/profiles
};

Installation find_installation();

// The value of a variable, or nothing where it is unset or empty.
std::optional<std::string> find_variable(std::string_view name);
// Whether a switch is on, by the library's own rule: anything but "0" and nothing.
bool is_switched_on(std::string_view name);

// /etc/cacheshim for root, XDG_CONFIG_HOME/cacheshim (~/.config) for others; empty where there is
// none.
std::string config_dir();

// Where profiles are; those of a later directory replace those of an earlier one: the shipped ones,
// profiles.d in config_dir(), and profiles.d beside the configuration file that is named, if any.
std::vector<std::string> profile_directories(const std::string& shipped,
                                             const std::string& config = "");

// Where the daemon of a mount at `mount_point` keeps what the preloaded library maps; empty where
// there is no place for it.
std::string run_dir(std::string_view mount_point);
// The same for a daemon of root, whoever calls.
std::string run_dir_of_root(std::string_view mount_point);

// `path` made absolute, its symlinks resolved as far as its directories exist. A last component
// that cannot be asked about, as that of a dead mount, stays as it is.
std::string resolve_path(const std::string& path);

// Whether `path` is `directory` or below it; both as resolve_path() returns them.
bool lies_in(std::string_view path, std::string_view directory);

// Whether this process is root outside of any user namespace.
bool is_real_root();

// The mount that a command means: --mount, else CACHESHIM_MOUNT, else /ci-cache.
std::string chosen_mount(const std::string& option);

}  // namespace cacheshim::cli
