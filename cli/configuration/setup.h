// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fuse/daemon.h"

namespace cacheshim::cli {

// The settings that the command line gives for a daemon.
struct DaemonArguments {
  std::string store;
  std::string layers;
  std::string config;
  std::vector<std::string> options;  // the arguments of -o
};

// Returns the resolved path of a directory that must exist and permit `access` (access(2)). `what`
// names it in messages. Throws Failure (unavailable).
std::string check_directory(std::string_view what, const std::string& path, int access);

// Returns the profiles of profile_directories(). Prints the errors of invalid ones and leaves them
// out. Throws Failure (unavailable) if there are no shipped profiles.
std::vector<Profile> load_all_profiles(const std::string& shipped, const std::string& config = "");

// Combines command line, configuration and profiles; sets everything except the mount point, the run directory and the
// cycle. Throws Failure (usage) for an invalid configuration, for invalid options, for a store in the mount of a store,
// and for layers in or above the store. Throws Failure (unavailable) for a store, directory of layers or directory of
// profiles that is missing or cannot be accessed.
DaemonOptions make_daemon_options(const DaemonArguments& arguments,
                                  const std::string& shipped_profiles);

}  // namespace cacheshim::cli
