// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fuse/daemon.h"

namespace cacheshim::cli {

// What the command line says about a daemon.
struct DaemonArguments {
  std::string store;
  std::string layers;
  std::string config;
  std::vector<std::string> options;  // the texts of -o
};

// The resolved path of a directory that must be there and open to `access` (access(2)). `what` is
// what a message calls it. Throws Failure (unavailable).
std::string check_directory(std::string_view what, const std::string& path, int access);

// The profiles of profile_directories(). Refused ones are printed and left out. Throws Failure
// (unavailable) where there are no shipped ones.
std::vector<Profile> load_all_profiles(const std::string& shipped, const std::string& config = "");

// Joins command line, configuration and profiles; everything but the mount point is set.
// Throws Failure: usage for the configuration and the options, unavailable for a store, a directory
// of layers or profiles that are not there.
DaemonOptions make_daemon_options(const DaemonArguments& arguments,
                                  const std::string& shipped_profiles);

}  // namespace cacheshim::cli
